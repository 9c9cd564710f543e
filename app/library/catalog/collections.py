"""Collections: documents that are embedded alike and searched together, and what was ingested into them when."""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, func, insert, select, update

from app.errors import CatalogError, Conflict, NotFound, OtherEmbedder, can_be_shown
from app.library.catalog.chunks import lock, pack, shorten
from app.library.catalog.database import DatabasePart, batches
from app.library.catalog.orphans import claimed, orphaned
from app.library.catalog.records import (
    Collection,
    CollectionTotals,
    IngestRun,
    Removed,
    RunState,
    Vectors,
)
from app.library.catalog.tables import (
    CHUNKS,
    COLLECTIONS,
    DOCUMENTS,
    INGEST_RUNS,
    SENTENCES,
    now,
)

if TYPE_CHECKING:
    from retriever import IntArray

_COLUMNS = [COLLECTIONS.c[name] for name in Collection.__dataclass_fields__]
MOST_RUNS = 100  # of a collection
LONGEST_NAME = 200
LONGEST_SPLITTER = 64
WHOLE_SPLITTER = "splitter"  # its key among its settings
CUT_SINCE = "since"  # beside it: the highest chunk of before
_RUN = [INGEST_RUNS.c[name] for name in IngestRun.__dataclass_fields__]


class Collections(DatabasePart):
    def create(
        self,
        name: str,
        *,
        embedder: str,
        embedder_fingerprint: str,
        dimension: int,
        splitter: str,
        splitter_settings: Mapping[str, Any] | None = None,
    ) -> Collection:
        """A new one. Raises CatalogError when the name is taken or no name at all."""
        check_name(name)
        values = {
            "uid": uuid.uuid4().hex,
            "name": name,
            "embedder": embedder,
            "embedder_fingerprint": embedder_fingerprint,
            "dimension": dimension,
        } | _cut_by(splitter, splitter_settings or {})
        with self._database.writing() as connection:
            _refuse_taken(connection, name)
            connection.execute(insert(COLLECTIONS), values)
            return _named(connection, name)

    def get(self, name: str) -> Collection:
        """Raises CatalogError with the names that there are."""
        with self._database.reading() as connection:
            return _named(connection, name)

    def find(self, name: str) -> Collection | None:
        with self._database.reading() as connection:
            return _find(connection, COLLECTIONS.c.name == name)

    def with_id(self, collection_id: int) -> Collection | None:
        """Whatever it is called by now; None where it has been deleted."""
        with self._database.reading() as connection:
            return _find(connection, COLLECTIONS.c.id == collection_id)

    def with_ids(self, ids: Iterable[int]) -> dict[int, Collection]:
        """Those that are there, by their ids."""
        with self._database.reading() as connection:
            rows = connection.execute(select(*_COLUMNS).where(COLLECTIONS.c.id.in_(sorted(ids))))
            return {row.id: _collection(row) for row in rows}

    def current(self, collection: Collection) -> Collection:
        """The same as it is by now, whatever it is called. Raises NotFound where it has been deleted, and tells of no
        other: who asks for it may be told of it alone.
        """
        found = self.with_id(collection.id)
        if found is None:
            raise NotFound("the collection that was asked for has been deleted meanwhile")
        return found

    def all(self) -> list[Collection]:
        """All, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(*_COLUMNS).order_by(COLLECTIONS.c.name))
            return [_collection(row) for row in rows]

    def rename(self, collection: Collection, name: str) -> None:
        check_name(name)
        with self._database.writing() as connection:
            lock(connection, collection, whole=True)
            _refuse_taken(connection, name, collection.id)
            _change(connection, collection.id, {"name": name})

    def set_engine(self, collection: Collection, engine_fingerprint: str | None, system_hash: str | None) -> None:
        """Which model and which System segment its KV belongs to."""
        with self._database.writing() as connection:
            lock(connection, collection)
            _change(connection, collection.id, {"engine_fingerprint": engine_fingerprint, "system_hash": system_hash})

    def cut_since(self, collection: Collection) -> int:
        """Chunks with higher ids were cut by the collection's splitter; of others it may have been another one."""
        query = select(COLLECTIONS.c.splitter_settings).where(COLLECTIONS.c.id == collection.id)
        with self._database.reading() as connection:
            return int((connection.scalar(query) or {}).get(CUT_SINCE, 0))

    def set_retrieval(self, collection: Collection, learnt: Mapping[str, Any] | None) -> None:
        """How its chunks are found from now on, by all processes."""
        with self._database.writing() as connection:
            lock(connection, collection)
            _change(connection, collection.id, {"retrieval": None if learnt is None else dict(learnt)})

    def set_fidelity(self, collection: Collection, measured: Mapping[str, Any]) -> None:
        """How far answers over its KV are off, for all processes."""
        with self._database.writing() as connection:
            lock(connection, collection)
            _change(connection, collection.id, {"fidelity": dict(measured)})

    def check_embedder(self, collection: Collection, embedder: str, fingerprint: str) -> None:
        """Vectors of two embedders cannot be compared. Raises OtherEmbedder with the command that re-embeds."""
        if fingerprint != collection.embedder_fingerprint:
            raise OtherEmbedder(
                f"collection {collection.name!r} was embedded by {collection.embedder} "
                f"({collection.embedder_fingerprint[:12]}), not by {embedder} ({fingerprint[:12]}): set "
                f"RAGCACHE_EMBEDDER={collection.embedder}, or embed it again with "
                f"`ragcache reindex -c {shlex.quote(collection.name)}`"
            )

    def reembed(
        self,
        collection: Collection,
        embedder: str,
        fingerprint: str,
        dimension: int,
        batches: Iterable[tuple[Sequence[int] | IntArray, Vectors]],
    ) -> Collection:
        """Give every chunk its new embedding, in one transaction: `batches` are (ids, vectors) of *all* live chunks.

        The collection gets a new uid, so that no index of the old vectors is ever taken for one of the new. Compute the
        vectors first: nobody else can write while this runs. What was learnt by the old ones is forgotten.
        """
        change = update(CHUNKS).where(CHUNKS.c.id == bindparam("chunk")).values(embedding=bindparam("new"))
        done = 0
        with self._database.writing() as connection:
            lock(connection, collection)
            own = select(CHUNKS.c.id).where(CHUNKS.c.collection_id == collection.id)
            connection.execute(delete(SENTENCES).where(SENTENCES.c.chunk_id.in_(own)))  # of the other embedder
            for ids, vectors in batches:
                assert vectors.shape == (len(ids), dimension), f"{vectors.shape}, not {(len(ids), dimension)}"
                rows = [{"chunk": int(one), "new": pack(vector)} for one, vector in zip(ids, vectors, strict=True)]
                done += connection.execute(change, rows).rowcount if rows else 0
            live = connection.scalar(select(COLLECTIONS.c.live).where(COLLECTIONS.c.id == collection.id))
            if done != live:
                raise CatalogError(
                    f"collection {collection.name!r} changed while it was embedded again: run the command again"
                )
            new = {"embedder": embedder, "embedder_fingerprint": fingerprint, "dimension": dimension}
            _change(connection, collection.id, new | {"uid": uuid.uuid4().hex, "retrieval": None})
            return _named(connection, collection.name)

    def delete(self, collection: Collection) -> Removed:
        """With all documents and conversations. The files of its indexes and the KV of the orphans are the caller's."""
        own = CHUNKS.c.collection_id == collection.id
        with self._database.writing() as connection:
            lock(connection, collection, whole=True)
            hashes = set(connection.scalars(select(CHUNKS.c.token_hash).where(own).distinct()))
            documents = select(func.count()).select_from(DOCUMENTS)
            count = connection.scalar(documents.where(DOCUMENTS.c.collection_id == collection.id)) or 0
            chunks = connection.execute(delete(CHUNKS).where(own)).rowcount
            connection.execute(delete(COLLECTIONS).where(COLLECTIONS.c.id == collection.id))
            removed = Removed(count, chunks, orphaned(connection, collection.id, hashes))
        return claimed(self._database, collection, removed)

    def totals(self, collection: Collection) -> CollectionTotals:
        return self.totals_of([collection])[collection.id]

    def totals_of(self, collections: Sequence[Collection]) -> dict[int, CollectionTotals]:
        """By their ids, however many, in two queries."""
        failed = func.count().filter(DOCUMENTS.c.state == "failed")
        documents = func.count(), failed, func.coalesce(func.sum(DOCUMENTS.c.size), 0)
        chunks = func.count(), func.coalesce(func.sum(CHUNKS.c.tokens), 0)
        found = {one.id: [0] * len((*documents, *chunks)) for one in collections}
        with self._database.reading() as connection:
            for table, columns, first in ((DOCUMENTS, documents, 0), (CHUNKS, chunks, len(documents))):
                of = table.c.collection_id
                for batch in batches(found):
                    query = select(of, *columns).where(of.in_(batch)).group_by(of)
                    for collection_id, *values in connection.execute(query):
                        found[collection_id][first : first + len(values)] = map(int, values)
        return {one: CollectionTotals(*values) for one, values in found.items()}


def check_name(name: str) -> None:
    if not name.strip() or not can_be_shown(name) or len(name) > LONGEST_NAME:
        raise CatalogError(f"{name!r} cannot name a collection: use 1 to {LONGEST_NAME} printable characters")


def _refuse_taken(connection: Connection, name: str, own: int | None = None) -> None:
    found = _find(connection, COLLECTIONS.c.name == name)
    if found is not None and found.id != own:
        raise Conflict(f"there is a collection {name!r} already: choose another name")


def _find(connection: Connection, which: ColumnElement[bool]) -> Collection | None:
    row = connection.execute(select(*_COLUMNS).where(which)).one_or_none()
    return None if row is None else _collection(row)


def _collection(row: Row[Any]) -> Collection:
    found = Collection(**row._mapping)
    settings = {key: value for key, value in found.splitter_settings.items() if key not in (WHOLE_SPLITTER, CUT_SINCE)}
    whole = found.splitter_settings.get(WHOLE_SPLITTER, found.splitter)
    return replace(found, splitter=str(whole), splitter_settings=settings)


def write_splitter(connection: Connection, collection: Collection) -> None:
    """How its documents are cut from now on; those that are in stay as they are."""
    high = select(COLLECTIONS.c.high).where(COLLECTIONS.c.id == collection.id)
    settings = {**collection.splitter_settings, CUT_SINCE: connection.scalar(high)}
    _change(connection, collection.id, _cut_by(collection.splitter, settings))


def _cut_by(splitter: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A splitter with its settings may be longer than its column, which has its beginning then."""
    if len(splitter) <= LONGEST_SPLITTER:
        return {"splitter": splitter, "splitter_settings": dict(settings)}
    return {"splitter": splitter[:LONGEST_SPLITTER], "splitter_settings": {**settings, WHOLE_SPLITTER: splitter}}


def _named(connection: Connection, name: str) -> Collection:
    found = _find(connection, COLLECTIONS.c.name == name)
    if found is None:
        names = ", ".join(connection.scalars(select(COLLECTIONS.c.name).order_by(COLLECTIONS.c.name))) or "none yet"
        raise NotFound(f"no collection {name!r}; there are: {names}")
    return found


def _change(connection: Connection, collection_id: int, values: Mapping[str, Any]) -> None:
    connection.execute(update(COLLECTIONS).where(COLLECTIONS.c.id == collection_id).values(**values))


class IngestRuns(DatabasePart):
    def start(self, collection: Collection) -> int:
        """The id of a new run of this process. Call it inside `Catalog.alone`: whoever holds that lock knows that all
        others, on whatever machine, run no more; those that are still called running were killed, and are marked so.
        Of before, MOST_RUNS are kept, and of what has gone as much as indexes have a use for.
        """
        own = INGEST_RUNS.c.collection_id == collection.id
        values = {"collection_id": collection.id, "state": "running", "pid": os.getpid(), "counts": {}}
        with self._database.writing() as connection:
            cut_off = update(INGEST_RUNS).where(own, INGEST_RUNS.c.state == "running")
            connection.execute(cut_off.values(state="interrupted"))
            made = connection.execute(insert(INGEST_RUNS).values(**values).returning(INGEST_RUNS.c.id)).scalar_one()
            newest = select(INGEST_RUNS.c.id).where(own).order_by(INGEST_RUNS.c.id.desc())
            if (old := connection.scalar(newest.offset(MOST_RUNS).limit(1))) is not None:
                connection.execute(delete(INGEST_RUNS).where(own, INGEST_RUNS.c.id <= old))
            shorten(connection, collection.id)
            return int(made)

    def finish(self, run_id: int, state: RunState, counts: Mapping[str, int]) -> None:
        values = {"state": state, "counts": dict(counts), "finished": now()}
        with self._database.writing() as connection:
            connection.execute(update(INGEST_RUNS).where(INGEST_RUNS.c.id == run_id).values(**values))

    def newest(self, collection: Collection, limit: int = 20) -> list[IngestRun]:
        query = select(*_RUN).where(INGEST_RUNS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(INGEST_RUNS.c.id.desc()).limit(limit))
            return [IngestRun(**row._mapping) for row in rows]
