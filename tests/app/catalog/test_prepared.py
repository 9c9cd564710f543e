"""Queries past SQLAlchemy give what SQLAlchemy gives, in either kind of database."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import bindparam, select

from app.catalog import Catalog, CatalogError, Collection, open_catalog
from app.catalog.chunks import PADDED
from app.catalog.prepared import Prepared
from app.catalog.tables import CHUNKS, DOCUMENTS
from app.settings import Settings
from tests.app.catalog.samples import document

HOSTILE = ["plain", "NUL \x00 and \x1a", "half of a pair \ud800", "日本語 %s %(id)s ?", "'; DROP TABLE chunks; --"]
EVERY = select(
    CHUNKS.c.id, CHUNKS.c.text, CHUNKS.c.heading, CHUNKS.c.pages, CHUNKS.c.boxes, CHUNKS.c.embedding, DOCUMENTS.c.title,
    DOCUMENTS.c.source, DOCUMENTS.c.error, DOCUMENTS.c.created, DOCUMENTS.c.text, DOCUMENTS.c.lines,
).join(DOCUMENTS, DOCUMENTS.c.id == CHUNKS.c.document_id).order_by(CHUNKS.c.id)  # fmt: skip


def test_rows_are_those_of_sqlalchemy(catalog: Catalog, collection: Collection) -> None:
    catalog.documents.replace(collection, *document(HOSTILE, "/a\x00 %.txt"))
    with catalog.database.reading() as connection:
        expected = [list(row) for row in connection.execute(EVERY)]
    assert len(expected) == len(HOSTILE)
    rows = Prepared(catalog.database, EVERY).rows()
    assert [[bytes(one) if isinstance(one, memoryview) else one for one in row] for row in rows] == expected


@pytest.mark.parametrize("text", HOSTILE)
def test_values_are_stored_as_columns_store_them(catalog: Catalog, collection: Collection, text: str) -> None:
    catalog.documents.replace(collection, *document(HOSTILE))
    query = Prepared(catalog.database, select(CHUNKS.c.text).where(CHUNKS.c.text == bindparam("wanted")))
    assert query.rows(wanted=text) == [[text]]
    assert query.rows(wanted=text) == [[text]], "values are not kept from one time to the next"
    assert query.rows(wanted="nothing") == []


@pytest.mark.parametrize("count", [0, 1, PADDED - 1, PADDED, PADDED + 1, 5 * PADDED])
def test_any_number_of_chunks(catalog: Catalog, collection: Collection, count: int) -> None:
    replaced = catalog.documents.replace(collection, *document([f"chunk {number}" for number in range(50)]))
    ids = list(replaced.chunk_ids[:count])[::-1]
    assert [one.chunk.id for one in catalog.chunks.found(ids)] == ids
    assert [one.chunk.id for one in catalog.chunks.found([*ids, 10**9])] == ids


def test_what_others_write_is_seen(catalog: Catalog, collection: Collection, settings: Settings) -> None:
    assert catalog.source(collection).position().live == 0
    with open_catalog(settings) as other:
        other.documents.replace(collection, *document(["one", "two"]))
    assert catalog.source(collection).position().live == 2


def test_a_failure_is_told(tmp_path: Path) -> None:
    with open_catalog(Settings(data_dir=tmp_path)) as catalog:
        with catalog.database.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE collections RENAME TO others")
        with pytest.raises(CatalogError, match="cannot use the catalog"):
            catalog.collections.find("any")
