"""Context caches: chunks that a client has the server remember under an id, until a time that it names.

Nobody can guess an id, and one of another owner is no more there than one that has expired or never was.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, true, update

from app.errors import NotFound
from app.library.catalog.database import Database, DatabasePart, batches
from app.library.catalog.departures import CachePlace, depart
from app.library.catalog.last_uses import LastUses
from app.library.catalog.orphans import left_by_cache
from app.library.catalog.serving_records import ContextCache
from app.library.catalog.serving_tables import CONTEXT_CACHES
from app.library.catalog.tables import now

_COLUMNS = [CONTEXT_CACHES.c[name] for name in ContextCache.__dataclass_fields__]


class ContextCaches(DatabasePart):
    """`owner` None is everybody. The KV of what is deleted here is the caller's to delete. What is used is noted in
    `uses`.
    """

    def __init__(self, database: Database, place: CachePlace):
        super().__init__(database)
        self._here = place
        self.uses = LastUses(database, CONTEXT_CACHES, CONTEXT_CACHES.c.used)

    def create(
        self,
        owner: str,
        *,
        border: str,
        model: str,
        chunks: Sequence[Any],
        nbytes: int,
        expires: datetime | None = None,
        pinned: bool = False,
    ) -> ContextCache:
        """`chunks` are any JSON: tokens or texts."""
        made = now()
        cache = ContextCache(f"cc-{secrets.token_hex(16)}", owner, border, model, made, made, expires, pinned, nbytes)
        with self._database.writing() as connection:
            connection.execute(insert(CONTEXT_CACHES), vars(cache) | {"chunks": list(chunks)})
        return cache

    def get(self, cache_id: str, owner: str | None) -> ContextCache:
        with self._database.reading() as connection:
            row = connection.execute(select(*_COLUMNS).where(_there(cache_id, owner))).one_or_none()
        if row is None:
            raise _missing(cache_id)
        return ContextCache(**row._mapping)

    def check_there(self, cache_id: str) -> None:
        """Raises NotFound where it has been deleted; one that has expired is there until then."""
        with self._database.reading() as connection:
            if connection.scalar(select(CONTEXT_CACHES.c.id).where(CONTEXT_CACHES.c.id == cache_id)) is None:
                raise _missing(cache_id)

    def chunks(self, cache_id: str, owner: str | None) -> list[Any]:
        with self._database.reading() as connection:
            row = connection.execute(select(CONTEXT_CACHES.c.chunks).where(_there(cache_id, owner))).one_or_none()
        if row is None:
            raise _missing(cache_id)
        return list(row.chunks)

    def all(self, owner: str | None) -> list[ContextCache]:
        """The newest first."""
        newest = CONTEXT_CACHES.c.created.desc(), CONTEXT_CACHES.c.id
        with self._database.reading() as connection:
            rows = connection.execute(select(*_COLUMNS).where(_of(owner), _lives(now())).order_by(*newest))
            return [ContextCache(**row._mapping) for row in rows]

    def ids_within(self, border: str | None) -> set[str]:
        """Of all caches within a border, or of all; of those that have expired too, until they go."""
        with self._database.reading() as connection:
            return set(connection.scalars(select(CONTEXT_CACHES.c.id).where(_within(border))))

    def chunks_within(self, border: str | None, ids: Iterable[str] | None = None) -> dict[str, list[Any]]:
        """The same with their chunks, or those of these ids alone. The chunks of a cache never change."""
        query = select(CONTEXT_CACHES.c.id, CONTEXT_CACHES.c.chunks).where(_within(border))
        found = dict[str, list[Any]]()
        with self._database.reading() as connection:
            for batch in [None] if ids is None else batches(sorted(ids)):
                wanted = query if batch is None else query.where(CONTEXT_CACHES.c.id.in_(batch))
                found |= {row.id: list(row.chunks) for row in connection.execute(wanted)}
        return found

    def prolong(self, cache_id: str, owner: str | None, expires: datetime | None) -> ContextCache:
        """It expires then, be that sooner; None: never."""
        self._change(cache_id, owner, {"expires": expires, "used": now()})
        return self.get(cache_id, owner)

    def delete(self, cache_id: str, owner: str | None, left: Iterable[str] = ()) -> None:
        """Also one that has expired. `left`: its token hashes. Those of everybody's are written down until
        `Orphans.settle_cache`, the others told to other machines at once.
        """
        own = and_(CONTEXT_CACHES.c.id == cache_id, _of(owner))
        with self._database.writing() as connection:
            border = connection.scalar(delete(CONTEXT_CACHES).where(own).returning(CONTEXT_CACHES.c.border))
            if border is None:
                raise _missing(cache_id)
            if border:
                depart(connection, self._here, left, border)
            else:
                left_by_cache(connection, cache_id, left)

    def expired(self, moment: datetime | None = None) -> list[ContextCache]:
        """For whoever deletes them, with their KV."""
        with self._database.reading() as connection:
            gone = select(*_COLUMNS).where(CONTEXT_CACHES.c.expires <= (moment or now()))
            return [ContextCache(**row._mapping) for row in connection.execute(gone)]

    def _change(self, cache_id: str, owner: str | None, values: dict[str, Any]) -> None:
        with self._database.writing() as connection:
            change = update(CONTEXT_CACHES).where(_there(cache_id, owner)).values(**values)
            if not connection.execute(change).rowcount:
                raise _missing(cache_id)


def _of(owner: str | None) -> ColumnElement[bool]:
    return true() if owner is None else CONTEXT_CACHES.c.owner == owner


def _within(border: str | None) -> ColumnElement[bool]:
    return true() if border is None else CONTEXT_CACHES.c.border == border


def _lives(moment: datetime) -> ColumnElement[bool]:
    return or_(CONTEXT_CACHES.c.expires.is_(None), CONTEXT_CACHES.c.expires > moment)


def _there(cache_id: str, owner: str | None) -> ColumnElement[bool]:
    return and_(CONTEXT_CACHES.c.id == cache_id, _of(owner), _lives(now()))


def _missing(cache_id: str) -> NotFound:
    return NotFound(f"no context cache {cache_id!r}: it never was, has expired, or somebody has deleted it")
