"""The documents of a collection with their numbers, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from app.catalog.engine import Database
from app.catalog.records import Collection, Document, State
from app.catalog.tables import CHUNKS, DOCUMENTS

_COLUMNS = [DOCUMENTS.c[name] for name in Document.__dataclass_fields__]


@dataclass(frozen=True)
class Listed:
    """A document, with how much it is."""

    document: Document
    chunks: int
    tokens: int
    pages: int  # 0 where the format has none


def list_documents(database: Database, collection: Collection, state: State | None = None) -> list[Listed]:
    """All, by source. The texts are not read."""
    counts = (
        select(CHUNKS.c.document_id, func.count(), func.sum(CHUNKS.c.tokens))
        .where(CHUNKS.c.collection_id == collection.id)
        .group_by(CHUNKS.c.document_id)
    )
    query = select(*_COLUMNS, DOCUMENTS.c.pages).where(DOCUMENTS.c.collection_id == collection.id)
    if state is not None:
        query = query.where(DOCUMENTS.c.state == state)
    with database.reading() as connection:
        sizes = {row[0]: (int(row[1]), int(row[2])) for row in connection.execute(counts)}
        return [
            Listed(Document(*values), *sizes.get(values[0], (0, 0)), len(pages))
            for *values, pages in connection.execute(query.order_by(DOCUMENTS.c.source))
        ]


def token_hashes(database: Database, collection: Collection) -> set[str]:
    """Of all chunks of a collection."""
    with database.reading() as connection:
        return set(connection.scalars(select(CHUNKS.c.token_hash).where(CHUNKS.c.collection_id == collection.id)))
