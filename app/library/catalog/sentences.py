"""The vectors of the sentences of chunks.

SQLite writes all of a transaction to its log and then again to the catalog, and these are half of what is written of a
document. So those of a long one go into transactions of their own behind the one that makes it visible: it is found
by its chunks meanwhile. What was not written then `unfinished` tells the next ingest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, func, insert, select, true

from app.library.catalog.chunks import lock
from app.library.catalog.database import DatabasePart, batches
from app.library.catalog.records import Collection
from app.library.catalog.tables import CHUNKS, SENTENCES

if TYPE_CHECKING:
    from retriever.sentences import Packed

AT_ONCE = 32 << 20  # bytes of a transaction


class Sentences(DatabasePart):
    def lacking(self, collection: Collection, after: int, most: int) -> list[tuple[int, str]]:
        """Ids and texts of the first chunks above an id whose sentences have no vectors, ascending."""
        return self._lacking(collection, CHUNKS.c.id > after, CHUNKS.c.id, most)

    def last_lacking(self, collection: Collection, before: int | None, most: int) -> list[tuple[int, str]]:
        """The same of the last chunks below an id, or of all, descending."""
        below = true() if before is None else CHUNKS.c.id < before
        return self._lacking(collection, below, CHUNKS.c.id.desc(), most)

    def _lacking(
        self, collection: Collection, within: ColumnElement[bool], order: ColumnElement[int], most: int
    ) -> list[tuple[int, str]]:
        own = CHUNKS.c.collection_id == collection.id, within, SENTENCES.c.chunk_id.is_(None)
        query = select(CHUNKS.c.id, CHUNKS.c.text).outerjoin(SENTENCES, SENTENCES.c.chunk_id == CHUNKS.c.id).where(*own)
        with self._database.reading() as connection:
            return [(row.id, row.text) for row in connection.execute(query.order_by(order).limit(most))]

    def add(self, collection: Collection, packed: Sequence[tuple[int, Packed | None]]) -> None:
        """Of chunks that have none, and are still there; those that got some meanwhile keep them."""
        with self._database.writing() as connection:
            lock(connection, collection)
            for part in batches(packed):
                ids = [one for one, _ in part]
                there = set(connection.scalars(select(CHUNKS.c.id).where(CHUNKS.c.id.in_(ids))))
                there -= set(connection.scalars(select(SENTENCES.c.chunk_id).where(SENTENCES.c.chunk_id.in_(ids))))
                insert_sentences(connection, [one for one in part if one[0] in there])

    def add_rest(self, collection: Collection, chunks: Sequence[int], packed: Sequence[Packed | None]) -> None:
        """Of a document that was just made visible: what its own transaction had no room for."""
        for part in parts(packed)[1:]:
            self._database.shorten_log()
            self.add(collection, list(zip(chunks[part], packed[part], strict=True)))

    def unfinished(self, collection: Collection) -> int | None:
        """The chunk above which some lack theirs, since somebody was stopped amid the last document that was written.
        None where the last chunk has them, or is of those of before, of whose documents none has.
        """
        last = select(CHUNKS.c.id, CHUNKS.c.document_id).where(CHUNKS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            newest = connection.execute(last.order_by(CHUNKS.c.id.desc()).limit(1)).one_or_none()
            if newest is None or _has(connection, newest.id):
                return None
            of_document = select(func.min(CHUNKS.c.id)).where(CHUNKS.c.document_id == newest.document_id)
            first = connection.execute(of_document).scalar_one()
            return int(first) if _has(connection, first) else None

    def begun(self, collection: Collection) -> bool:
        """Whether the first chunk has them, if there is any. It gets them last where many lack theirs."""
        first = select(func.min(CHUNKS.c.id)).where(CHUNKS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            chunk = connection.scalar(first)
            return chunk is None or _has(connection, chunk)


def insert_sentences(connection: Connection, packed: Iterable[tuple[int, Packed | None]]) -> None:
    rows = [{"chunk_id": one, "vectors": vectors} for one, vectors in packed if vectors is not None]
    if rows:
        connection.execute(insert(SENTENCES), rows)


def parts(packed: Sequence[Packed | None]) -> list[slice]:
    """Of the chunks of a document, what is written in one transaction each, in order."""
    starts, held = [0], 0
    for place, vectors in enumerate(packed):
        held += len(vectors or b"")
        if held > AT_ONCE and place > starts[-1]:
            starts.append(place)
            held = len(vectors or b"")
    return [slice(first, last) for first, last in zip(starts, [*starts[1:], len(packed)], strict=True)]


def _has(connection: Connection, chunk_id: int) -> bool:
    return connection.scalar(select(SENTENCES.c.chunk_id).where(SENTENCES.c.chunk_id == chunk_id)) is not None
