"""Whether the server of this container can serve (/ready). One that has keys tells that to whoever has one, as
RAGCACHE_API_KEY; without it this sees that it lives.
"""

from __future__ import annotations

import sys

from app.client.address import find_server
from app.client.connection import ServerConnection, ServerError
from ragcache.errors import RagcacheError

UNKNOWN_CALLER = 401


def main(url: str) -> int:
    try:
        server = find_server(url, env_file=None)
        assert server is not None
        ServerConnection(server).ask("GET", "ready")
    except RagcacheError as error:
        if isinstance(error, ServerError) and error.answered == UNKNOWN_CALLER and server is not None:
            return 0 if server.key is None else 1
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or ["http://127.0.0.1:8000"]))
