"""Which server is asked, and with which key: by a flag, the environment or `.env`, in this order.

`app/settings.py` has these settings too, so that it knows their names; it takes longer to import than a question takes
to be sent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from app.env_file import read_env_file
from ragcache.errors import ConfigError
from ragcache.server_address import ServerAddress

PREFIX = "RAGCACHE_"
SERVER, KEY, COLLECTION = f"{PREFIX}SERVER", f"{PREFIX}API_KEY", f"{PREFIX}COLLECTION"
OWN = {SERVER, KEY, COLLECTION}
FIRST_COLLECTION = "default"
KEY_SOURCE = "`ragcache keys create` makes one, such as rk-…"


@dataclass(frozen=True)
class NamedServer(ServerAddress):
    collection: str = FIRST_COLLECTION  # is asked where no flag names another one


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
    server = NamedServer.read(url, given.get(KEY) or None, where, KEY, KEY_SOURCE)
    return replace(server, collection=given.get(COLLECTION) or FIRST_COLLECTION)


def _check_file(environment: Mapping[str, str], env_file: Path | None) -> None:
    """A file of the current folder, which may have come with it, does not say where a key of the user's goes."""
    if environment.get(KEY):
        raise ConfigError(
            f"{SERVER} stands in {env_file}, and {KEY} in the environment: name both in one of them, so that no file "
            "of a folder decides who sees the key"
        )
