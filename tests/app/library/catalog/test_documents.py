from __future__ import annotations

import dataclasses
import os
import random
import tracemalloc
from functools import partial

import numpy as np
import pytest

from app.errors import CatalogError
from app.library.catalog import Catalog
from app.library.catalog.records import Collection, FileState, Removed
from app.loaders.base import Line, Page
from tests.app.library.catalog.samples import digest, document, make_collection


def texts(catalog: Catalog, collection: Collection) -> list[str]:
    return [text.split("\n")[-1] for _, batch, _ in catalog.source(collection).added(0) for text in batch]


def test_a_document_comes_back_whole(catalog: Catalog, collection: Collection) -> None:
    pages = (Page(1, "page", 0, 3), Page(2, "page", 4, 7))
    lines = (Line(0, 3, 1, (1.0, 2.5, 3.0, 4.0)),)
    record, chunks = document(["one", "two"], pages=pages, lines=lines, mtime_ns=1 << 62)
    place = {"heading": ("A", "B"), "pages": ((2, "page"),), "boxes": ((2, 1.0, 2.0, 3.0, 4.5),)}
    chunks[1] = dataclasses.replace(chunks[1], **place)
    written = catalog.documents.replace(collection, record, chunks)
    stored = catalog.documents.get(written.document_id)
    layout = catalog.documents.layout(written.document_id)
    assert (layout.text, layout.pages, layout.lines) == (record.text, pages, lines)
    for name in ("source", "content_hash", "size", "mtime_ns", "kind", "title"):
        assert getattr(stored, name) == getattr(record, name)
    assert (stored.state, stored.error, stored.attempts) == ("ready", None, 0)
    for chunk, given, number in zip(catalog.chunks.of_document(stored.id), chunks, (0, 1), strict=True):
        assert (chunk.id, chunk.ordinal) == (written.chunk_ids[number], number)
        for name in ("start", "end", "text", "tokens", "token_hash", "heading", "pages", "boxes"):
            assert getattr(chunk, name) == getattr(given, name)


def test_a_page_is_read_without_the_lines_of_others(catalog: Catalog, collection: Collection) -> None:
    pages = tuple(Page(number, "page", 0, 7) for number in range(1, 101))
    lines = tuple(Line(0, 7, number % 100 + 1, (0.5, number / 3, 99.25, 1e-7)) for number in range(20_000))
    record, chunks = document(["one", "two"], pages=pages, lines=lines)
    written = catalog.documents.replace(collection, record, chunks).document_id
    peaks = []
    for act in (catalog.documents.layout, partial(catalog.documents.page_layout, number=42)):
        tracemalloc.start()
        layout = act(written)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (layout.text, layout.pages) == (record.text, pages)
    assert layout.lines == tuple(line for line in lines if line.page == 42)
    assert peaks[1] < peaks[0] / 3, peaks
    assert catalog.documents.page_layout(written, 101).lines == ()
    bare = catalog.documents.replace(collection, *document(["one"], "/b.txt")).document_id
    assert catalog.documents.page_layout(bare, 1) == catalog.documents.layout(bare)
    assert catalog.documents.text(bare) == "one"


def test_a_new_version_takes_the_place_of_the_old(catalog: Catalog, collection: Collection) -> None:
    old = catalog.documents.replace(collection, *document(["same", "old"]))
    new = catalog.documents.replace(collection, *document(["same", "new", "newer"]))
    assert new.document_id == old.document_id
    assert min(new.chunk_ids) > max(old.chunk_ids)
    assert new.removed == Removed(0, 2, (digest("old"),))
    assert texts(catalog, collection) == ["same", "new", "newer"]
    assert [chunk_id for _, chunk_id in catalog.source(collection).retired(0)] == list(old.chunk_ids)
    assert catalog.documents.layout(new.document_id).text == "same new newer"


def test_ids_are_never_given_again(catalog: Catalog, collection: Collection) -> None:
    first = catalog.documents.replace(collection, *document(["a"]))
    catalog.documents.delete(collection, [first.document_id])
    second = catalog.documents.replace(collection, *document(["a"]))
    assert second.document_id > first.document_id
    assert second.chunk_ids > first.chunk_ids


def test_a_transaction_that_fails_leaves_everything_as_it_was(catalog: Catalog, collection: Collection) -> None:
    catalog.documents.replace(collection, *document(["old", "text"]))
    before = catalog.source(collection).position(), catalog.documents.states(collection)
    record, chunks = document(["new", "text"])
    chunks[1] = dataclasses.replace(chunks[1], embedding=np.zeros(3, np.float32))
    with pytest.raises(AssertionError, match="chunk 1"):
        catalog.documents.replace(collection, record, chunks)
    assert (catalog.source(collection).position(), catalog.documents.states(collection)) == before
    assert texts(catalog, collection) == ["old", "text"]


def test_a_chunk_must_stand_in_its_document(catalog: Catalog, collection: Collection) -> None:
    record, chunks = document(["one", "two"])
    with pytest.raises(AssertionError):
        catalog.documents.replace(collection, record, [dataclasses.replace(chunks[0], start=1, end=4)])


def test_states_tell_what_an_ingest_needs(catalog: Catalog, collection: Collection) -> None:
    ready = catalog.documents.replace(collection, *document(["a"], "/docs/a"))
    catalog.documents.replace(make_collection(catalog, "other"), *document(["a"], "/docs/other"))
    catalog.documents.fail(collection, document(["b"], "/docs/b")[0], "encrypted")
    states = catalog.documents.states(collection)
    assert states["/docs/a"] == FileState(ready.document_id, digest("a"), 1, 7, "ready", 0, None)
    assert (states["/docs/b"].state, states["/docs/b"].attempts, states["/docs/b"].error) == ("failed", 1, "encrypted")
    assert set(states) == {"/docs/a", "/docs/b"}
    catalog.documents.touch([(ready.document_id, 9, 8)])
    changed = catalog.documents.states(collection)["/docs/a"]
    assert (changed.size, changed.mtime_ns, changed.content_hash) == (9, 8, digest("a"))
    catalog.documents.touch([])


def test_a_failed_document_holds_nothing(catalog: Catalog, collection: Collection) -> None:
    record, chunks = document(["good"])
    written = catalog.documents.replace(collection, record, chunks)
    assert catalog.documents.fail(collection, record, "corrupt") == Removed(0, 1, (digest("good"),))
    failed = catalog.documents.get(written.document_id)
    assert (failed.state, failed.error, failed.attempts) == ("failed", "corrupt", 1)
    assert catalog.documents.layout(failed.id).text == ""
    assert texts(catalog, collection) == []
    catalog.documents.fail(collection, record, "corrupt")
    assert catalog.documents.get(failed.id).attempts == 2
    catalog.documents.fail(collection, dataclasses.replace(record, content_hash="other"), "corrupt too")
    assert catalog.documents.get(failed.id).attempts == 1, "another content is tried for the first time"
    assert catalog.documents.all(collection, "failed") == [catalog.documents.get(failed.id)]
    catalog.documents.replace(collection, record, chunks)
    mended = catalog.documents.get(failed.id)
    assert (mended.state, mended.error, mended.attempts) == ("ready", None, 0)


def test_orphans_are_what_no_collection_has(catalog: Catalog, collection: Collection) -> None:
    other = make_collection(catalog, "other")
    first = catalog.documents.replace(collection, *document(["mine", "shared", "twice", "twice"], "/a"))
    second = catalog.documents.replace(collection, *document(["twice"], "/b"))
    catalog.documents.replace(other, *document(["shared"], "/a"))
    removed = catalog.documents.delete(collection, [first.document_id, 12345])
    assert removed == Removed(1, 4, (digest("mine"),))
    assert catalog.chunks.hashes(collection) == {digest("twice")}
    assert catalog.documents.delete(collection, [second.document_id]).orphans == (digest("twice"),)
    assert catalog.chunks.hashes() == {digest("shared")}
    assert catalog.collections.delete(other).orphans == (digest("shared"),)


def test_documents_of_another_collection_are_not_deleted(catalog: Catalog, collection: Collection) -> None:
    theirs = catalog.documents.replace(make_collection(catalog, "other"), *document(["a"]))
    assert catalog.documents.delete(collection, [theirs.document_id]) == Removed()
    assert catalog.documents.get(theirs.document_id).state == "ready"


def test_a_path_can_be_as_long_as_a_system_allows(catalog: Catalog, collection: Collection) -> None:
    """An index of PostgreSQL takes 2.7 kB a row, and compresses first: random letters do not."""
    source = "/" + "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyzäöü", k=os.pathconf("/", "PC_PATH_MAX")))
    catalog.documents.replace(collection, *document(["a"], source))
    found = catalog.documents.find(collection, source)
    assert found is not None
    assert found.source == source
    assert catalog.documents.find(collection, source[:-1]) is None


def test_what_is_not_there_is_said(catalog: Catalog, collection: Collection) -> None:
    with pytest.raises(CatalogError, match="no document 7: `ragcache ls`"):
        catalog.documents.get(7)
    with pytest.raises(CatalogError, match="no document 7"):
        catalog.documents.layout(7)
    catalog.collections.delete(collection)
    with pytest.raises(CatalogError, match=f"collection {collection.id} is gone"):
        catalog.documents.replace(collection, *document(["a"]))
