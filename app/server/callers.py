"""Who asks: what each may do, and whose KV may serve him."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from app.errors import NotFound
from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import SCOPES, KeyLimits, Scope
from app.library.kv import BROUGHT, border_around
from app.server.problems import RefusedRequest
from ragcache.server_address import is_loopback

_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d+)?")  # a name or an address, and perhaps a port


@dataclass(frozen=True)
class Caller:
    """`id` is the key's, or "" for whoever sits at the machine of a server that has no keys."""

    id: str = ""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    collections: frozenset[int] | None = None  # ids of those that may be read; None: all
    limits: KeyLimits = field(default_factory=KeyLimits)

    def may(self, scope: Scope) -> bool:
        return bool({scope, "admin"} & self.scopes)

    def check(self, scope: Scope) -> None:
        if not self.may(scope):
            raise RefusedRequest(403, f"this key may not do that: it takes the scope {scope!r}", code="scope")

    @property
    def runs_all(self) -> bool:
        """He administers the server, with all of its collections."""
        return "admin" in self.scopes and self.collections is None

    def check_whole(self) -> None:
        """For what concerns all of them at once."""
        self.check("admin")
        if not self.runs_all:
            raise RefusedRequest(403, "this key is of some collections alone, and this concerns all", code="scope")

    @property
    def runs_it(self) -> bool:
        """The server: he is told what broke in it, with its paths."""
        return "admin" in self.scopes

    def may_see(self, collection: Collection) -> bool:
        return self.collections is None or collection.id in self.collections

    def collection(self, catalog: Catalog, name: str) -> Collection:
        """One that may not be seen is not there."""
        found = catalog.collections.find(name)
        if found is None or not self.may_see(found):
            raise NotFound(f"no collection {name!r}")
        return found

    @property
    def bordered(self) -> bool:
        """He may not see all collections, and is told nothing by which he could find out what is in the others."""
        return self.collections is not None

    def border_of(self, collection: Collection) -> str:
        """KV of a chunk has attended to what stood before it, perhaps texts of other collections: whoever may not see
        all of them is served by KV within a border alone. Keys that see the same one share it.
        """
        return border_around(collection) if self.bordered else ""

    @property
    def border(self) -> str:
        """Of what he brings himself."""
        return f"{BROUGHT}{self.id}" if self.id else ""


async def caller_of(request: Request) -> Caller:
    """Whom the gate has let in."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


def check_local(request: Request, origins: Iterable[str]) -> None:
    """Without keys, only programs of this machine are served: no page of another site that a browser here shows."""
    client, host = request.client, request.headers.get("host", "")
    if client is not None and not is_loopback(client.host):
        raise RefusedRequest(401, "without keys this server answers its own machine alone: `ragcache keys create`")
    named = _HOST.fullmatch(host)
    if named is None or not is_loopback(named[1].strip("[]")):
        raise RefusedRequest(403, f"without keys this server is asked by a local name, and {host!r} is none")
    origin = request.headers.get("origin")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}", *origins):
        raise RefusedRequest(403, f"pages of {origin!r} may not ask: RAGCACHE_SERVE_ORIGINS names those that may")


Asking = Annotated[Caller, Depends(caller_of)]
