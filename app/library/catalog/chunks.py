"""Chunks as retrieval reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, update

from app.library.catalog.changes import lock
from app.library.catalog.database import Database, batches
from app.library.catalog.records import Collection, Document, DocumentLayout, Found, StoredChunk
from app.library.catalog.tables import CHUNKS, DOCUMENTS
from app.loaders.base import Line, Page

if TYPE_CHECKING:
    from retriever import IntArray

_CHUNK = [CHUNKS.c[name] for name in StoredChunk.__dataclass_fields__]
_DOCUMENT = [DOCUMENTS.c[name].label(f"of_{name}") for name in Document.__dataclass_fields__]
_FOUND = select(*_CHUNK, *_DOCUMENT).join(DOCUMENTS, DOCUMENTS.c.id == CHUNKS.c.document_id)


class Chunks:
    def __init__(self, database: Database):
        self._database = database

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
                        documents[chunk.document_id] = Document(*row[len(_CHUNK) :])
                    rows[chunk.id] = Found(chunk, documents[chunk.document_id])
        return [rows[one] for one in wanted if one in rows]

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

    def of_document(self, document_id: int) -> list[StoredChunk]:
        """In their order."""
        query = select(*_CHUNK).where(CHUNKS.c.document_id == document_id).order_by(CHUNKS.c.ordinal)
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


def _chunk(row: Sequence[Any]) -> StoredChunk:
    """JSON has lists where a record has tuples."""
    heading, pages, boxes = row[-3:]
    values = [*row[:-3], tuple(heading), tuple(map(tuple, pages)), tuple(map(tuple, boxes))]
    return StoredChunk(*values)
