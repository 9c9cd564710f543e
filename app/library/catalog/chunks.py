"""Chunks: the steps of a change to those of a collection, and as retrieval reads them.

Each step runs inside a transaction that its caller holds. A change starts with `lock`: ids and retirement numbers of
one collection are then given out in the order in which they become visible, which the indexes rely on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Row, Select, Text, and_, bindparam, delete, func, insert, or_, select, update

from app.errors import CatalogError, NotFound
from app.library.catalog.database import Database, DatabasePart, batches, stored
from app.library.catalog.kept_rows import SEQUENCES
from app.library.catalog.locks import check_held
from app.library.catalog.orphans import orphaned
from app.library.catalog.records import (
    ChunkRecord,
    Collection,
    Document,
    DocumentLayout,
    Found,
    Removed,
    StoredChunk,
    Vectors,
)
from app.library.catalog.tables import CHUNKS, COLLECTIONS, DOCUMENTS, RETIREMENTS, STANDINGS, escape
from app.loaders.base import Line, Page

if TYPE_CHECKING:
    from retriever import IntArray

_CHUNK = [CHUNKS.c[name] for name in StoredChunk.__dataclass_fields__]
_DOCUMENT = [DOCUMENTS.c[name].label(f"of_{name}") for name in Document.__dataclass_fields__]
_ROWS = 4096
LEAST_LOG, LOG_PART = 4096, 2  # retirements that are kept at least, and for each chunk that is there
LEAST_SHORTENED = 50_000  # of them, at once, or twice what is there: all of an older version's would take minutes
_CONDITIONS = 200  # of one statement: an expression of SQLite is 1,000 deep at most
_FOUND = (
    select(*_CHUNK, *_DOCUMENT, STANDINGS.c.place)
    .join(DOCUMENTS, DOCUMENTS.c.id == CHUNKS.c.document_id)
    .outerjoin(STANDINGS, STANDINGS.c.document_id == CHUNKS.c.document_id)
)
# Of rows that are written as they are stored.
_WRITTEN = ("text", "heading", "pages", "boxes", "spans")
_INSERT = insert(CHUNKS).values({name: bindparam(name, type_=Text()) for name in _WRITTEN})
_LAST_ID = f"SELECT coalesce(max(seq), 0) FROM {SEQUENCES} WHERE name = ?"


def source_key(source: str) -> str:
    return hashlib.sha256(escape(source).encode()).hexdigest()


def lock(connection: Connection, collection: Collection, *, whole: bool = False) -> None:
    """Take the collection for this transaction, as the caller knows it.

    Ids and vectors of another history do not belong into it: another process may have embedded it anew, or restored an
    older catalog, since the caller began.

    Jobs, conversations and whatever else refers to it can come meanwhile: a long document takes half a minute. `whole`:
    these wait too, as they must where it is deleted or renamed.
    """
    columns = select(COLLECTIONS.c.uid, COLLECTIONS.c.embedder_fingerprint, COLLECTIONS.c.dimension)
    held = columns.where(COLLECTIONS.c.id == collection.id).with_for_update(key_share=not whole)
    now = connection.execute(held).one_or_none()
    if now is None:
        raise NotFound(f"collection {collection.id} is gone: somebody has deleted it meanwhile")
    if tuple(now) != (collection.uid, collection.embedder_fingerprint, collection.dimension):
        raise CatalogError(
            f"collection {collection.name!r} was embedded again or restored meanwhile by another process, and nothing "
            "of this change was written: run the command again"
        )
    check_held(connection, collection)


def retire(connection: Connection, collection_id: int, document_ids: Sequence[int]) -> tuple[int, set[str]]:
    """Delete the chunks of documents and write it down; returns how many, and their token hashes."""
    hashes: set[str] = set()
    count = 0
    for batch in batches(document_ids):
        of_these = CHUNKS.c.document_id.in_(batch), CHUNKS.c.collection_id == collection_id
        hashes.update(connection.scalars(select(CHUNKS.c.token_hash).where(*of_these)))
        gone = select(CHUNKS.c.collection_id, CHUNKS.c.id).where(*of_these).order_by(CHUNKS.c.id)
        connection.execute(insert(RETIREMENTS).from_select(["collection_id", "chunk_id"], gone))
        count += connection.execute(delete(CHUNKS).where(*of_these)).rowcount
    if count:
        last = select(func.max(RETIREMENTS.c.number)).where(RETIREMENTS.c.collection_id == collection_id)
        changed = {"live": COLLECTIONS.c.live - count, "retired": last.scalar_subquery()}
        connection.execute(update(COLLECTIONS).where(COLLECTIONS.c.id == collection_id).values(changed))
    return count, hashes


def shorten(connection: Connection, collection_id: int) -> None:
    """The log of what is gone, where to follow all of it takes longer than an index anew: who lacks what goes here sees
    that he has more chunks than there are, and makes that. Its newest row stays. So many go at a time: it is within
    another change.
    """
    of, own = RETIREMENTS.c.number, RETIREMENTS.c.collection_id == collection_id
    columns = COLLECTIONS.c.retired, COLLECTIONS.c.live
    retired, live = connection.execute(select(*columns).where(COLLECTIONS.c.id == collection_id)).one()
    kept = max(LEAST_LOG, live * LOG_PART)
    if retired - (connection.scalar(select(func.min(of)).where(own)) or retired) < kept * 3 // 2:
        return  # as it nearly always is; numbers count over all collections, so it may be shorter still
    last = connection.scalar(select(of).where(own).order_by(of.desc()).offset(kept).limit(1))
    if last is not None:
        count = max(LEAST_SHORTENED, 2 * live)
        most = connection.scalar(select(of).where(own).order_by(of).offset(count - 1).limit(1))
        connection.execute(delete(RETIREMENTS).where(own, of <= min(last, most or last)))


def rows_of(collection: Collection, chunks: Sequence[ChunkRecord]) -> list[dict[str, Any]]:
    """What `add` inserts of a document's chunks, in order: packed before its transaction, for whose end all wait who
    write to SQLite.
    """
    rows = []
    for ordinal, chunk in enumerate(chunks):
        shape = chunk.embedding.shape
        assert shape == (collection.dimension,), f"chunk {ordinal}: {shape}, not ({collection.dimension},)"
        written = {name: stored(CHUNKS.c[name], getattr(chunk, name)) for name in _WRITTEN}
        place = {"collection_id": collection.id, "ordinal": ordinal}
        row = vars(chunk) | place | written | {"embedding": pack(chunk.embedding)}
        del row["sentences"]
        rows.append(row)
    return rows


def add(
    connection: Connection, collection_id: int, document_id: int, chunks: Sequence[dict[str, Any]]
) -> tuple[int, ...]:
    """Insert a document's chunks, in order, without their sentences; returns their ids, ascending."""
    if not chunks:
        return ()
    ids = _insert(connection, [values | {"document_id": document_id} for values in chunks])
    assert list(ids) == sorted(ids)
    changed = {"live": COLLECTIONS.c.live + len(ids), "high": ids[-1]}
    connection.execute(update(COLLECTIONS).where(COLLECTIONS.c.id == collection_id).values(changed))
    return ids


def _insert(connection: Connection, rows: list[dict[str, Any]]) -> tuple[int, ...]:
    if connection.dialect.name != "sqlite":
        return tuple(connection.scalars(_INSERT.returning(CHUNKS.c.id, sort_by_parameter_order=True), rows))
    # Nobody else gives out ids meanwhile. Row by row through SQLAlchemy it would take three times as long.
    first = 1 + connection.exec_driver_sql(_LAST_ID, (CHUNKS.name,)).scalar_one()
    ids = range(first, first + len(rows))
    names = ", ".join(f'"{name}"' for name in ("id", *rows[0]))
    inserted = f"INSERT INTO {CHUNKS.name} ({names}) VALUES (?{', ?' * len(rows[0])})"
    connection.exec_driver_sql(inserted, [(one, *row.values()) for one, row in zip(ids, rows, strict=True)])
    return tuple(ids)


def remove_documents(connection: Connection, collection_id: int, document_ids: Sequence[int]) -> Removed:
    """Documents with all that hangs on them; those that are gone already are not counted. Call `claimed` then."""
    chunks, hashes = retire(connection, collection_id, document_ids)
    documents = 0
    for batch in batches(document_ids):
        these = DOCUMENTS.c.id.in_(batch), DOCUMENTS.c.collection_id == collection_id
        documents += connection.execute(delete(DOCUMENTS).where(*these)).rowcount
    return Removed(documents, chunks, orphaned(connection, collection_id, hashes))


def pack(vector: Vectors) -> bytes:
    return vector.astype("<f4", copy=False).tobytes()


def pages(
    database: Database, query: Select[Any], key: Column[int], after: int, most: int
) -> Iterator[Sequence[Row[Any]]]:
    """Rows by one of their columns, ascending, from above `after` on: so many at a time, each time of one moment.
    Nothing is open between two: while one is worked on for hours, SQLite could not shorten its log, nor PostgreSQL
    clean up.
    """
    ordered = query.order_by(key).limit(most)
    while True:
        with database.reading() as connection:
            rows = connection.execute(ordered.where(key > after)).all()
        if not rows:
            return
        yield rows
        after = rows[-1]._mapping[key]


class Chunks(DatabasePart):
    def found(self, ids: Sequence[int] | IntArray) -> list[Found]:
        """Chunks with their documents, in the order of `ids`; those that are gone meanwhile are left out."""
        wanted = [int(one) for one in ids]
        rows: dict[int, Found] = {}
        documents: dict[int, Document] = {}
        with self._database.reading() as connection:
            for batch in batches(wanted):
                for row in connection.execute(_FOUND.where(CHUNKS.c.id.in_(batch))):
                    chunk = _chunk(row[: len(_CHUNK)])
                    if chunk.document_id not in documents:
                        documents[chunk.document_id] = Document(*row[len(_CHUNK) : -1])
                    rows[chunk.id] = Found(chunk, documents[chunk.document_id], row[-1])
        return [rows[one] for one in wanted if one in rows]

    def texts(self, collection: Collection) -> Iterator[tuple[int, str]]:
        """Ids and texts of all chunks, in the order of their ids."""
        query = select(CHUNKS.c.id, CHUNKS.c.text).where(CHUNKS.c.collection_id == collection.id)
        for rows in pages(self._database, query, CHUNKS.c.id, 0, _ROWS):
            yield from ((row.id, row.text) for row in rows)

    def at(self, places: Sequence[tuple[int, int]]) -> list[Found]:
        """Chunks with their documents, by document and ordinal, in no order; where there is none, there is none."""
        # A condition per run of ordinals: SQLite scans the table for pairs, and a statement takes only so many values.
        of, ordinal = CHUNKS.c.document_id, CHUNKS.c.ordinal
        conditions = [and_(of == one, ordinal.between(first, last)) for one, first, last in _runs(places)]
        parts = [conditions[start : start + _CONDITIONS] for start in range(0, len(conditions), _CONDITIONS)]
        with self._database.reading() as connection:
            rows = [row for part in parts for row in connection.execute(_FOUND.where(or_(*part)))]
        return [Found(_chunk(row[: len(_CHUNK)]), Document(*row[len(_CHUNK) : -1]), row[-1]) for row in rows]

    def retokenize(self, collection: Collection, chunks: Sequence[tuple[int, int, str]]) -> None:
        """(chunk id, tokens, token hash) of chunks of one collection, as another tokenizer reads them; all or none."""
        rows = [{"chunk": one, "count": tokens, "hash": token_hash} for one, tokens, token_hash in chunks]
        if not rows:
            return
        change = update(CHUNKS).where(CHUNKS.c.id == bindparam("chunk"))
        with self._database.writing() as connection:
            lock(connection, collection)
            connection.execute(change.values(tokens=bindparam("count"), token_hash=bindparam("hash")), rows)

    def hashes(self, collection: Collection | None = None) -> set[str]:
        """Token hashes of all chunks of a collection, or of all collections: KV of any other can be pruned."""
        query = select(CHUNKS.c.token_hash).distinct()
        if collection is not None:
            query = query.where(CHUNKS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def lengths(self, collection: Collection) -> dict[str, int]:
        """Tokens of each text of it, by token hash."""
        query = select(CHUNKS.c.token_hash, CHUNKS.c.tokens).where(CHUNKS.c.collection_id == collection.id).distinct()
        with self._database.reading() as connection:
            return dict(map(tuple, connection.execute(query)))

    def hashes_of(self, document_ids: Sequence[int]) -> dict[int, list[str]]:
        """Token hashes by document: one of each chunk, in no order, so that of a text which it repeats comes again."""
        found: dict[int, list[str]] = {one: [] for one in document_ids}
        with self._database.reading() as connection:
            for batch in batches(document_ids):
                query = select(CHUNKS.c.document_id, CHUNKS.c.token_hash).where(CHUNKS.c.document_id.in_(batch))
                for document_id, token_hash in connection.execute(query):
                    found[document_id].append(token_hash)
        return found

    def of_document(self, document_id: int, start: int = 0, end: int | None = None) -> list[StoredChunk]:
        """In their order, those that share something with this part of its text."""
        query = select(*_CHUNK).where(CHUNKS.c.document_id == document_id).order_by(CHUNKS.c.ordinal)
        if start:
            query = query.where(CHUNKS.c.end > start)
        if end is not None:
            query = query.where(CHUNKS.c.start < end)
        with self._database.reading() as connection:
            return [_chunk(row) for row in connection.execute(query)]

    def layout(self, chunk_id: int) -> tuple[StoredChunk, DocumentLayout] | None:
        """A chunk, with its own text and its pages and lines as offsets in the document. None for one that is gone, or
        was stored before this was kept.
        """
        query = select(*_CHUNK, CHUNKS.c.spans).where(CHUNKS.c.id == chunk_id)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None or row.spans is None:
            return None
        chunk = _chunk(row[:-1])
        of_pages, of_boxes = row.spans
        pages = (Page(*name, *span) for name, span in zip(chunk.pages, of_pages, strict=True))
        lines = (
            Line(start, end, page, (x0, y0, x1, y1))
            for (page, x0, y0, x1, y1), (start, end) in zip(chunk.boxes, of_boxes, strict=True)
        )
        return chunk, DocumentLayout(chunk.text, tuple(pages), tuple(lines))


def _runs(places: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(document, first, last) of ordinals without a gap, ascending."""
    runs: list[tuple[int, int, int]] = []
    for document, ordinal in sorted(set(places)):
        if runs and runs[-1][0] == document and runs[-1][2] == ordinal - 1:
            runs[-1] = (document, runs[-1][1], ordinal)
        else:
            runs.append((document, ordinal, ordinal))
    return runs


def _chunk(row: Sequence[Any]) -> StoredChunk:
    """JSON has lists where a record has tuples."""
    heading, pages, boxes = row[-3:]
    values = [*row[:-3], tuple(heading), tuple(map(tuple, pages)), tuple(map(tuple, boxes))]
    return StoredChunk(*values)
