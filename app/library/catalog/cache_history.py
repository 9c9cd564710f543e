"""What the cache was good for, over time and by chunk: sums that many processes add to, within bounds.

Each answer counts in a minute, an hour, a day and for ever, of its collection. A chunk counts for the collection that
was asked alone, so a text that several have tells nothing of the others; and all of it goes with its collection, and
with the chunk.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection as Several
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, insert, select, true, update

from app.library.catalog.database import DatabasePart, batches
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import CacheTally, HistoryPoint, ReusedChunk
from app.library.catalog.serving_tables import CACHE_HISTORY, CHUNK_USES
from app.library.catalog.tables import CHUNKS, COLLECTIONS, DOCUMENTS, now

MINUTE, HOUR, DAY = 60, 3600, 86_400
EVER = 0  # a step without end
KEPT: Mapping[int, int] = {MINUTE: 180, HOUR: 336, DAY: 400}  # steps of each length, of a collection
LONGEST_TEXT = 400  # characters of a chunk
_STEPS = (*KEPT, EVER)
_SUMS = list(CacheTally.__dataclass_fields__)
Moments = Mapping[tuple[int, int], CacheTally]  # by collection and second of the epoch
Uses = Mapping[tuple[int, int], tuple[int, int]]  # by collection and chunk: how often, and tokens that were reused


class CacheHistory(DatabasePart):
    def add(self, tallies: Moments, uses: Uses | None = None) -> None:
        """What belongs to collections and chunks that are gone is left out. It is not worth a wait: raises CatalogError
        where somebody else is writing.
        """
        with self._database.writing_at_once() as connection:
            there = _locked(connection, {one for one, _ in tallies} | {one for one, _ in uses or {}})
            sums: dict[tuple[int, int, int], CacheTally] = defaultdict(CacheTally)
            for (collection_id, second), tally in tallies.items():
                for step in _STEPS if collection_id in there else ():
                    sums[collection_id, step, second - second % step if step else 0] += tally
            for place, tally in sorted(sums.items()):
                _add(connection, place, tally)
            _forget(connection, sums)
            for collection_id in sorted(there):
                own = {chunk: use for (one, chunk), use in (uses or {}).items() if one == collection_id}
                _count(connection, collection_id, own)

    def captured(self, collection: Collection, tokens: int, seconds: float) -> None:
        """KV of so many tokens was computed, to be kept. Raises as `add`."""
        self.add({(collection.id, int(time.time())): CacheTally(captured=tokens, captured_s=seconds)})

    def points(self, step: int, since: int, collections: Several[int] | None = None) -> list[HistoryPoint]:
        """Those in which anything was, of these collections together, or of all; the oldest first."""
        sums = [func.sum(CACHE_HISTORY.c[name]) for name in _SUMS]
        query = select(CACHE_HISTORY.c.start, *sums).group_by(CACHE_HISTORY.c.start).order_by(CACHE_HISTORY.c.start)
        query = query.where(CACHE_HISTORY.c.step == step, CACHE_HISTORY.c.start >= since, _of(collections))
        with self._database.reading() as connection:
            return [HistoryPoint(int(start), _tally(row)) for start, *row in connection.execute(query)]

    def ever(self, collection: Collection) -> CacheTally:
        """Since it was made."""
        return sum((one.tally for one in self.points(EVER, 0, [collection.id])), CacheTally())

    def reused(self, limit: int, collections: Several[int] | None = None) -> list[ReusedChunk]:
        """Those that served most often come first."""
        query = (
            select(
                CHUNKS.c.collection_id,
                CHUNKS.c.document_id,
                DOCUMENTS.c.source,
                DOCUMENTS.c.title,
                CHUNKS.c.id,
                CHUNKS.c.token_hash,
                CHUNKS.c.start,
                CHUNKS.c.end,
                func.substr(CHUNKS.c.text, 1, LONGEST_TEXT, type_=CHUNKS.c.text.type),
                CHUNKS.c.tokens,
                CHUNK_USES.c.uses,
                CHUNK_USES.c.reused,
                CHUNK_USES.c.used,
            )
            .join(CHUNKS, CHUNKS.c.id == CHUNK_USES.c.chunk_id)
            .join(DOCUMENTS, DOCUMENTS.c.id == CHUNKS.c.document_id)
            .where(true() if collections is None else CHUNKS.c.collection_id.in_(sorted(collections)))
            .order_by(CHUNK_USES.c.uses.desc(), CHUNK_USES.c.reused.desc(), CHUNKS.c.id)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return [ReusedChunk(*tuple(row)) for row in connection.execute(query)]


def _of(collections: Several[int] | None) -> ColumnElement[bool]:
    return true() if collections is None else CACHE_HISTORY.c.collection_id.in_(sorted(collections))


def _tally(row: Sequence[Any]) -> CacheTally:
    """PostgreSQL sums whole numbers to decimal ones."""
    kinds = [type(zero) for zero in vars(CacheTally()).values()]
    return CacheTally(*(kind(value) for kind, value in zip(kinds, row, strict=True)))


def _locked(connection: Connection, collections: Iterable[int]) -> set[int]:
    """Those that are there, and stay until the end of the transaction; others that add to them wait, and no more."""
    found = set[int]()
    for batch in batches(sorted(collections)):
        query = select(COLLECTIONS.c.id).where(COLLECTIONS.c.id.in_(batch)).order_by(COLLECTIONS.c.id)
        found.update(connection.scalars(query.with_for_update(key_share=True)))
    return found


def _add(connection: Connection, place: tuple[int, int, int], tally: CacheTally) -> None:
    keys = dict(zip(("collection_id", "step", "start"), place, strict=True))
    row = and_(*(CACHE_HISTORY.c[name] == value for name, value in keys.items()))
    more = {name: CACHE_HISTORY.c[name] + value for name, value in vars(tally).items() if value}
    if not more:
        return
    if not connection.execute(update(CACHE_HISTORY).where(row).values(more)).rowcount:
        connection.execute(insert(CACHE_HISTORY).values(keys | vars(tally)))


def _forget(connection: Connection, written: Iterable[tuple[int, int, int]]) -> None:
    newest = {(one, step): start for one, step, start in sorted(written)}
    for (collection_id, step), start in newest.items():
        if step != EVER:
            own = CACHE_HISTORY.c.collection_id == collection_id, CACHE_HISTORY.c.step == step
            gone = CACHE_HISTORY.c.start <= start - KEPT[step] * step
            connection.execute(delete(CACHE_HISTORY).where(*own, gone))


def _count(connection: Connection, collection_id: int, uses: Mapping[int, tuple[int, int]]) -> None:
    moment = now()
    for batch in batches(sorted(uses)):
        here = select(CHUNKS.c.id).where(CHUNKS.c.id.in_(batch), CHUNKS.c.collection_id == collection_id)
        chunks = list(connection.scalars(here))
        known = set(connection.scalars(select(CHUNK_USES.c.chunk_id).where(CHUNK_USES.c.chunk_id.in_(chunks))))
        rows = [{"chunk": one, "more": uses[one][0], "tokens": uses[one][1], "moment": moment} for one in chunks]
        old, new = ([row for row in rows if (row["chunk"] in known) is there] for there in (True, False))
        if old:
            changed = update(CHUNK_USES).where(CHUNK_USES.c.chunk_id == bindparam("chunk"))
            sums = {"uses": CHUNK_USES.c.uses + bindparam("more"), "reused": CHUNK_USES.c.reused + bindparam("tokens")}
            connection.execute(changed.values(**sums, used=bindparam("moment")), old)
        if new:
            values = {"chunk_id": "chunk", "uses": "more", "reused": "tokens", "used": "moment"}
            connection.execute(insert(CHUNK_USES), [{name: row[of] for name, of in values.items()} for row in new])
