"""Which server is asked, and with which key: by a flag, the environment or `.env`, in this order.

`app/settings.py` has these settings too, so that it knows their names; it takes longer to import than a question takes
to be sent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from app.env_file import read_env_file
from ragcache.errors import ConfigError

PREFIX = "RAGCACHE_"
SERVER, KEY, COLLECTION = f"{PREFIX}SERVER", f"{PREFIX}API_KEY", f"{PREFIX}COLLECTION"
OWN = {SERVER, KEY, COLLECTION}
FIRST_COLLECTION = "default"
PORTS = {"http": 80, "https": 443}
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_URL = re.compile(r"[\x21-\x7e]{1,2000}")


@dataclass(frozen=True)
class NamedServer:
    """`collection` is asked where no flag names another one."""

    secure: bool
    host: str
    port: int
    path: str = ""  # before that of each route
    key: str | None = field(default=None, repr=False)
    collection: str = FIRST_COLLECTION

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}{self.path}"


def find_server(flag: str | None, env_file: Path | None = Path(".env")) -> NamedServer | None:
    """None where this machine is asked itself: no server is named, or "" is. Raises ConfigError."""
    if flag == "":
        return None
    environment = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}
    in_file = {name: value for name, value in read_env_file(env_file, PREFIX).items() if name.startswith(PREFIX)}
    given = in_file | environment
    url = flag if flag is not None else given.get(SERVER)
    if not url:
        return None
    if (environment.keys() | in_file.keys()) - OWN:
        from app.settings import check_names

        check_names(env_file)
    where = "--server" if flag is not None else SERVER
    if where == SERVER and SERVER not in environment:
        _check_file(environment, env_file)
        print(f"note: {env_file} in {Path.cwd()} names the server", file=sys.stderr)
    parts = _split(url, where)
    key = given.get(KEY) or None
    server = NamedServer(
        parts.scheme == "https",
        parts.hostname or "",
        parts.port or PORTS[parts.scheme],
        parts.path.rstrip("/").removesuffix("/v1"),
        key,
        given.get(COLLECTION) or FIRST_COLLECTION,
    )
    _check_key(server)
    return server


def _check_file(environment: Mapping[str, str], env_file: Path | None) -> None:
    """A file of the current folder, which may have come with it, does not say where a key of the user's goes."""
    if environment.get(KEY):
        raise ConfigError(
            f"{SERVER} stands in {env_file}, and {KEY} in the environment: name both in one of them, so that no file "
            "of a folder decides who sees the key"
        )


def _split(url: str, where: str) -> SplitResult:
    told = f"{where} should be a URL such as https://rag.example.org or http://127.0.0.1:8000"
    if not _URL.fullmatch(url):
        raise ConfigError(told)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(told) from None
    if "@" in parts.netloc:
        raise ConfigError(f"{where} holds a name or a password: the key goes into {KEY}")
    if parts.scheme not in PORTS or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise ConfigError(f"{told}, and not {url!r}")
    return parts


def _check_key(server: NamedServer) -> None:
    if server.key is None:
        return
    if not _KEY.fullmatch(server.key):
        raise ConfigError(f"{KEY} is no key: `ragcache keys create` makes one, such as rk-…")
    if not server.secure and not _is_loopback(server.host):
        raise ConfigError(
            f"{server.url} is another machine, and http would show {KEY} to everybody on the way: use https, or a "
            "tunnel (`ssh -L 8000:127.0.0.1:8000 HOST`)"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
