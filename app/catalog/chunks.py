"""Chunks as retrieval reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import select

from app.catalog.changes import batches
from app.catalog.engine import Database
from app.catalog.models import ChunkRow, DocumentRow
from app.catalog.records import Chunk, Document, Found

_CHUNK = [getattr(ChunkRow, name) for name in Chunk.__dataclass_fields__]
_DOCUMENT = [getattr(DocumentRow, name).label(f"of_{name}") for name in Document.__dataclass_fields__]


class Chunks:
    def __init__(self, database: Database):
        self._database = database

    def found(self, ids: Sequence[int] | npt.NDArray[np.int64]) -> list[Found]:
        """Chunks with their documents, in the order of `ids`; those that are gone meanwhile are left out."""
        wanted = [int(one) for one in ids]
        query = select(*_CHUNK, *_DOCUMENT).join(DocumentRow, DocumentRow.id == ChunkRow.document_id)
        rows: dict[int, Found] = {}
        with self._database.reading() as connection:
            for batch in batches(wanted):
                for row in connection.execute(query.where(ChunkRow.id.in_(batch))).mappings():
                    rows[row["id"]] = Found(_chunk(row), _document(row))
        return [rows[one] for one in wanted if one in rows]

    def of_document(self, document_id: int) -> list[Chunk]:
        """In their order."""
        query = select(*_CHUNK).where(ChunkRow.document_id == document_id).order_by(ChunkRow.ordinal)
        with self._database.reading() as connection:
            return [_chunk(row) for row in connection.execute(query).mappings()]

    def previous(self, chunk: Chunk, count: int) -> list[Chunk]:
        """Up to `count` chunks before it in its document, in their order."""
        query = select(*_CHUNK).where(
            ChunkRow.document_id == chunk.document_id,
            ChunkRow.ordinal.between(chunk.ordinal - count, chunk.ordinal - 1),
        )
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(ChunkRow.ordinal)).mappings()
            return [_chunk(row) for row in rows]


def _chunk(row: Mapping[Any, Any]) -> Chunk:
    values = {name: row[name] for name in Chunk.__dataclass_fields__}
    values["heading"] = tuple(values["heading"])
    values["pages"] = tuple(tuple(page) for page in values["pages"])
    values["boxes"] = tuple(tuple(box) for box in values["boxes"])
    return Chunk(**values)


def _document(row: Mapping[Any, Any]) -> Document:
    return Document(**{name: row[f"of_{name}"] for name in Document.__dataclass_fields__})
