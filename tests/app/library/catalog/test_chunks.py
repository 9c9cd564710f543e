from __future__ import annotations

import pytest

from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from tests.app.library.catalog.samples import document

HOSTILE = ["plain", "NUL \x00 and \x1a", "half of a pair \ud800", "日本語 %s %(id)s ?", "'; DROP TABLE chunks; --"]


@pytest.mark.parametrize("count", [0, 1, 7, 50])
def test_any_number_is_found_in_the_order_asked(catalog: Catalog, collection: Collection, count: int) -> None:
    replaced = catalog.documents.replace(collection, *document([f"chunk {number}" for number in range(50)]))
    ids = list(replaced.chunk_ids[:count])[::-1]
    assert [one.chunk.id for one in catalog.chunks.found(ids)] == ids
    assert [one.chunk.id for one in catalog.chunks.found([*ids, 10**9])] == ids


def test_any_text_and_name_is_found_as_it_was(catalog: Catalog, collection: Collection) -> None:
    replaced = catalog.documents.replace(collection, *document(HOSTILE, "/a\x00 %.txt"))
    found = catalog.chunks.found(replaced.chunk_ids)
    assert [one.chunk.text for one in found] == HOSTILE
    assert {one.document.source for one in found} == {"/a\x00 %.txt"}
