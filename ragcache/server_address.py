"""Where a server is asked, and with which key: checked before anything is sent. No message repeats what is wrong: a URL
may hold a password too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Self
from urllib.parse import SplitResult, urlsplit

from ragcache.errors import ConfigError

PORTS = {"http": 80, "https": 443}
_KEY = re.compile(r"[\x21-\x7e]{1,4000}")
_URL = re.compile(r"[\x21-\x7e]{1,2000}")


@dataclass(frozen=True)
class ServerAddress:
    secure: bool
    host: str
    port: int
    path: str = ""  # before that of each route
    key: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, url: str, key: str | None, url_name: str, key_name: str, key_source: str) -> Self:
        """`url_name`, `key_name`: what whoever gives them calls them. `key_source` says where keys are from.

        Raises ConfigError.
        """
        parts = _split(url, url_name, key_name)
        path = parts.path.rstrip("/").removesuffix("/v1")
        port = parts.port or PORTS[parts.scheme]
        found = cls(parts.scheme == "https", parts.hostname or "", port, path, key)
        if key is not None and not _KEY.fullmatch(key):
            raise ConfigError(f"{key_name} is no key: {key_source}")
        if key is not None and not found.secure and not is_loopback(found.host):
            raise ConfigError(
                f"{found.url} is another machine, and http would show {key_name} to everybody on the way: use https, "
                "or a tunnel (`ssh -L 8000:127.0.0.1:8000 HOST`)"
            )
        return found

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}{self.path}"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str, url_name: str, key_name: str) -> SplitResult:
    told = f"{url_name} should be a URL such as https://rag.example.org or http://127.0.0.1:8000"
    if not _URL.fullmatch(url):
        raise ConfigError(told)
    try:
        parts = urlsplit(url)
        port, name = parts.port, (parts.hostname or "").encode("idna")  # as a connection will encode it
    except ValueError:
        raise ConfigError(told) from None
    if "@" in parts.netloc:
        raise ConfigError(f"{url_name} holds a name or a password: the key goes into {key_name}")
    if parts.scheme not in PORTS or not name or port == 0:
        raise ConfigError(told)
    if parts.query or parts.fragment:
        raise ConfigError(f"{told}, with nothing behind a ? or #: the key goes into {key_name}")
    return parts
