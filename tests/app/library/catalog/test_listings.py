from __future__ import annotations

from dataclasses import replace

from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from app.loaders.base import Page
from tests.app.library.catalog.samples import digest, document, make_collection


def test_documents_with_their_numbers(catalog: Catalog, collection: Collection) -> None:
    paged, chunks = document(["one", "three"], "/b.pdf")
    paged = replace(paged, pages=(Page(1, "page", 0, 4), Page(2, "page", 4, 9)))
    catalog.documents.replace(collection, paged, chunks)
    catalog.documents.fail(collection, document([], "/a\x00.txt")[0], "it is empty")
    catalog.documents.replace(make_collection(catalog, "other"), *document(["one"], "/b.pdf"))
    listed = catalog.documents.listed(collection)
    assert [(one.document.source, one.chunks, one.tokens, one.pages) for one in listed] == [
        ("/a\x00.txt", 0, 0, 0),
        ("/b.pdf", 2, 8, 2),
    ]
    assert listed[1].document == catalog.documents.find(collection, "/b.pdf")
    assert catalog.documents.listed(collection, "failed") == listed[:1]


def test_pages_of_documents_are_those_of_the_whole_list(catalog: Catalog, collection: Collection) -> None:
    for number in range(7):
        for one in (collection, make_collection(catalog, f"other{number}")):
            catalog.documents.replace(one, *document(["one", "three"][: number % 3], f"/{9 - number}"))
    catalog.documents.fail(collection, document([], "/8")[0], "it is empty")
    listed = sorted(catalog.documents.listed(collection), key=lambda one: one.document.id)
    assert [one.chunks for one in listed] == [0, 0, 2, 0, 1, 2, 0]
    ids = [one.document.id for one in listed]
    for limit in (1, 3, 7, 9):
        for after in (0, *ids):
            rest = [one for one in listed if one.document.id > after]
            assert catalog.documents.page(collection, limit, after=after) == rest[:limit]
    assert catalog.documents.page(collection, 9, state="failed") == [listed[1]]
    assert catalog.documents.page(collection, 9, sources=["/7", "/5", "/1"]) == [listed[2], listed[4]]
    assert catalog.documents.page(collection, 9, after=ids[2], sources=["/7", "/5"], state="ready") == [listed[4]]


def test_another_tokenizer(catalog: Catalog, collection: Collection) -> None:
    other = make_collection(catalog, "other")
    for one in (collection, other):
        catalog.documents.replace(one, *document(["one", "two"]))
    first, second = catalog.chunks.of_document(catalog.documents.all(collection)[0].id)
    catalog.chunks.retokenize(collection, [(first.id, 9, "9" * 64)])
    catalog.chunks.retokenize(collection, [])
    assert catalog.chunks.hashes(collection) == {"9" * 64, digest("two")}
    assert catalog.chunks.hashes(other) == {digest("one"), digest("two")}
    again = catalog.chunks.of_document(first.document_id)
    assert again == [replace(first, tokens=9, token_hash="9" * 64), second]


def test_jobs_are_chosen_before_they_are_cut(catalog: Catalog, collection: Collection) -> None:
    """However many are newer."""
    other = make_collection(catalog, "other")
    sent, warming = catalog.jobs.create(other, {}, "anna"), catalog.jobs.create(other, {}, "anna", "warm")
    for _ in range(3):
        catalog.jobs.create(collection, {}, "anna")
    assert catalog.jobs.all(owner=None, within=[other.id], limit=1) == [warming]
    assert catalog.jobs.all(owner="anna", within=[other.id], kind="ingest", limit=1) == [sent]
    assert catalog.jobs.all(owner=None, kind="warm", limit=1) == [warming]
    assert catalog.jobs.all(owner=None, within=[]) == []
