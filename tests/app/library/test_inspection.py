from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.errors import CatalogError, MaintenanceError, NotFound
from app.library import Library
from app.library.inspection import find_document, show_chunk, show_document, summaries
from app.models import Models
from ragcache.store.folder import CacheFolder
from tests.app.library.shelves import BOOKS, addresses, fail, fill, put, reopened


def test_summaries_and_lists(library: Library, models: Models) -> None:
    assert summaries(library, models) == []
    collection = fill(library, models)
    fill(library, models, "another", {})
    fail(library, collection, "/books/bad.pdf", "it is encrypted")
    another, default = summaries(library, models)
    assert (another.collection.name, another.totals.documents) == ("another", 0)
    assert (default.totals.documents, default.totals.failed, default.totals.chunks) == (3, 1, 5)
    all_of_them = library.catalog.documents.listed(library.catalog.collections.get("default"))
    assert [(one.document.source, one.chunks, one.pages) for one in all_of_them] == [
        ("/books/bad.pdf", 0, 0),
        ("/books/lamps.txt", 3, 1),
        ("/books/rye.txt", 2, 1),
    ]
    counted = sum(models.template.count(text) for text in BOOKS["/books/rye.txt"])
    assert (all_of_them[2].tokens, all_of_them[0].tokens) == (counted, 0)
    (bad,) = library.catalog.documents.listed(library.catalog.collections.get("default"), "failed")
    assert bad.document.error == "it is encrypted"


def test_a_document_is_found_by_id_and_by_path(
    library: Library, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = fill(library, models, books={})
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    source = str(tmp_path / "real" / "12")
    number = put(library, models, collection, source, ["Text."])
    monkeypatch.chdir(tmp_path / "link")
    for named in (str(number), source, "./12", "../link/12", "../real/../real/12"):
        assert find_document(library.catalog, named, collection)[1].id == number, named
    with pytest.raises(CatalogError, match="no document 12:"):
        find_document(library.catalog, "12", collection)
    with pytest.raises(NotFound, match=r"no document '9{30}' in collection 'default'"):
        find_document(library.catalog, "9" * 30, collection)
    (tmp_path / "loop").symlink_to("loop")
    for named in ("9" * 5000, str(tmp_path / "loop")):
        with pytest.raises(NotFound, match="no document '"):
            find_document(library.catalog, named, collection)


def test_one_of_several_collections_must_be_named(library: Library, models: Models) -> None:
    first, second = fill(library, models), fill(library, models, "other")
    with pytest.raises(MaintenanceError, match="is in the collections 'default', 'other': choose one with -c"):
        find_document(library.catalog, "/books/rye.txt")
    assert find_document(library.catalog, "/books/rye.txt", second)[0] == second
    with pytest.raises(NotFound, match="no document '1' in collection 'other'"):
        find_document(library.catalog, "1", second)
    assert find_document(library.catalog, "1")[0] == first


def test_the_kv_of_each_chunk(library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    fresh, _ = reopened(library, models)
    shown = show_document(fresh, "/books/lamps.txt")
    assert (len(shown.pages), len(shown.chunks)) == (1, 3)
    first, _, third = (shown.variants(chunk) for chunk in shown.chunks)
    assert [one.key.context for one in first] == [()]
    assert [shown.hashes[one] for one in third[0].key.context] == [0, 1]
    chunk = show_chunk(library, shown.chunks[2].id)
    assert (chunk.document, [one.ordinal for one in chunk.chunks]) == (shown.document, [2])
    assert [info.key for info in chunk.variants(chunk.chunks[0])] == [third[0].key]
    for unknown in (10**6, 10**30, -1):
        with pytest.raises(NotFound, match=f"no chunk {unknown}:"):
            show_chunk(library, unknown)


def test_without_kv_no_store_is_opened(library: Library, models: Models) -> None:
    fill(library, models)
    shown = show_document(library, "1", "default")
    assert not any(shown.variants(chunk) for chunk in shown.chunks)
    assert not library.settings.cache_dir.exists()


def test_kv_is_what_lies_in_the_cache_folder(library: Library, models: Models) -> None:
    """Not what was once written: evictions, other processes and hands take it away."""
    collection = fill(library, models, kv=True)
    folder = CacheFolder(library.settings.kv_folder)
    stored = addresses(library, collection)
    own = [item for item in folder.items() if item.address in stored]
    assert len(own) == 5
    for gone, left in ((0, 5), (2, 3), (3, 0)):
        assert len(folder.remove(own[:gone], time.time_ns() + 10**9)) == gone  # as another process would
        own = own[gone:]
        found = {one.collection.id: one for one in summaries(library, models)}
        told = found[collection.id]
        assert (told.kv_variants, told.kv_bytes) == (left, sum(item.nbytes for item in own))


def test_kv_of_another_model_is_told_apart(library: Library, models: Models) -> None:
    collection = fill(library, models, kv=True)
    (before,) = summaries(library, models)
    assert before.kv_bytes > 0
    assert before.other_kv_bytes == 0
    another = fill(library, models, "another", kv=True)
    collections = library.catalog.collections
    collections.set_engine(collection, "0" * 64, "1" * 64)
    found = {one.collection.id: one for one in summaries(library, models)}
    assert (found[collection.id].kv_bytes, found[collection.id].other_kv_bytes) == (0, before.kv_bytes)
    assert found[another.id].kv_bytes == before.kv_bytes
