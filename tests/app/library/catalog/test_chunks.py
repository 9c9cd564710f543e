from __future__ import annotations

import pytest
from sqlalchemy import event

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


def test_a_long_document_is_written_in_as_few_steps_as_a_short_one(catalog: Catalog, collection: Collection) -> None:
    """All who write to SQLite wait meanwhile, and what is written has been made ready before."""
    if catalog.database.path is None:
        return  # in PostgreSQL nobody waits
    steps: list[str] = []
    counts = {}
    event.listen(catalog.database._engine, "before_cursor_execute", lambda *told: steps.append(told[2]))
    for number in (2, 400, 3):
        steps.clear()
        words = [f"word {one} of {number}" for one in range(number)]
        replaced = catalog.documents.replace(collection, *document(words, f"/{number}.txt"))
        assert list(replaced.chunk_ids) == [one.id for one in catalog.chunks.of_document(replaced.document_id)]
        counts[number] = len(steps)
    assert len(set(counts.values())) == 1, counts


@pytest.mark.parametrize("gone", ["/a.txt", "/b.txt"])
def test_the_id_of_a_chunk_is_never_given_again(catalog: Catalog, collection: Collection, gone: str) -> None:
    first, second = (
        catalog.documents.replace(collection, *document(["one", "two"], name)) for name in ("/a.txt", "/b.txt")
    )
    chosen = first if gone == "/a.txt" else second
    catalog.documents.delete(collection, [chosen.document_id])
    third = catalog.documents.replace(collection, *document(["three"], "/c.txt"))
    assert min(third.chunk_ids) > max(second.chunk_ids)


def test_chunks_are_found_by_their_places(catalog: Catalog, collection: Collection) -> None:
    first, second = (
        catalog.documents.replace(collection, *document([f"{name} {number}" for number in range(9)], name))
        for name in ("/a.txt", "/b.txt")
    )
    one, other = first.document_id, second.document_id
    found = catalog.chunks.at([(one, 3), (other, 0), (other, 8), (other, 9), (one, -1), (10**9, 0)])
    assert sorted((hit.document.source, hit.chunk.text) for hit in found) == [
        ("/a.txt", "/a.txt 3"),
        ("/b.txt", "/b.txt 0"),
        ("/b.txt", "/b.txt 8"),
    ]
    assert found[0] in catalog.chunks.found([*first.chunk_ids, *second.chunk_ids])
    assert catalog.chunks.at([]) == []
    assert len(catalog.chunks.at([(place, 0) for place in range(1, 1200)])) == 2


@pytest.mark.parametrize("step", [1, 2])
def test_any_number_of_places_of_a_document_is_found(catalog: Catalog, collection: Collection, step: int) -> None:
    """More than a statement takes values: SQLite 32,766, PostgreSQL 65,535."""
    replaced = catalog.documents.replace(collection, *document([f"chunk {number}" for number in range(9)]))
    found = catalog.chunks.at([(replaced.document_id, ordinal) for ordinal in range(0, 70_000, step)])
    assert [one.chunk.ordinal for one in found] == list(range(0, 9, step))
