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
