"""The chunks of one collection as the indexes follow them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sqlalchemy import select

from app.errors import CatalogError
from app.library.catalog.database import Database
from app.library.catalog.filters import condition
from app.library.catalog.records import Collection
from app.library.catalog.tables import CHUNKS, COLLECTIONS, DOCUMENTS, RETIREMENTS
from retriever import IntArray
from retriever.source import Batch, Position, Source, Where

_POSITION = select(COLLECTIONS.c.high, COLLECTIONS.c.retired, COLLECTIONS.c.live, COLLECTIONS.c.uid)


class CatalogSource(Source):
    """Filters: `document` (ids or sources), `source`, and `kind`, what the loader took the document for."""

    def __init__(self, database: Database, collection: Collection):
        self._database = database
        self._collection = collection

    @property
    def dimension(self) -> int:
        return self._collection.dimension

    def position(self) -> Position:
        with self._database.reading() as connection:
            row = connection.execute(_POSITION.where(COLLECTIONS.c.id == self._collection.id)).one_or_none()
        if row is None or row.uid != self._collection.uid:
            raise CatalogError(f"collection {self._collection.name!r} was deleted or embedded again: open it anew")
        return Position(row.high, row.retired, row.live)

    def added(self, after: int, batch: int = 4096) -> Iterator[Batch]:
        query = (
            select(CHUNKS.c.id, CHUNKS.c.text, CHUNKS.c.embedding)
            .where(CHUNKS.c.collection_id == self._collection.id)
            .order_by(CHUNKS.c.id)
            .limit(batch)
        )
        with self._database.reading() as connection:
            while rows := connection.execute(query.where(CHUNKS.c.id > after)).all():
                vectors = np.frombuffer(b"".join(row.embedding for row in rows), dtype="<f4")
                after = rows[-1].id
                yield (
                    np.array([row.id for row in rows], dtype=np.int64),
                    [row.text for row in rows],
                    vectors.reshape(len(rows), self.dimension).astype(np.float32),
                )

    def retired(self, after: int) -> list[tuple[int, int]]:
        query = (
            select(RETIREMENTS.c.number, RETIREMENTS.c.chunk_id)
            .where(RETIREMENTS.c.collection_id == self._collection.id, RETIREMENTS.c.number > after)
            .order_by(RETIREMENTS.c.number)
        )

        with self._database.reading() as connection:
            return [(row.number, row.chunk_id) for row in connection.execute(query)]

    def live_ids(self, where: Where) -> IntArray:
        query = select(CHUNKS.c.id).where(CHUNKS.c.collection_id == self._collection.id).order_by(CHUNKS.c.id)
        with self._database.reading() as connection:
            if where:
                chosen = condition(connection, self._collection, where)
                query = query.join(DOCUMENTS, DOCUMENTS.c.id == CHUNKS.c.document_id).where(chosen)
            return np.fromiter(connection.scalars(query), dtype=np.int64)
