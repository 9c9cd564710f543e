"""Indexes of a catalog that was put back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import CatalogError
from app.library import index_folder
from app.library.catalog import Catalog
from app.settings import Settings
from retriever.vector_index import VectorIndex
from tests.app.library.catalog.samples import DIMENSION, document, make_collection
from tests.app.library.catalog.test_copies import data, opened
from tests.app.library.catalog.test_restoring import changed, put_back

__all__ = ["changed", "data"]


def test_indexes_follow_the_history_that_was_restored(data: Path, changed: Path, tmp_path: Path) -> None:
    """Numbers of chunks are given again: an index of the other history would show what is not there."""

    def index(catalog: Catalog) -> tuple[str, list[int]]:
        collection = catalog.collections.get("default")
        vectors = VectorIndex(DIMENSION, "f" * 64, tmp_path / "index" / collection.uid)
        vectors.catch_up(catalog.source(collection))
        vectors.save()
        vectors.check_integrity()
        found, _ = vectors.search(document(["five"])[1][0].embedding, 9)
        return collection.uid, [one for one in found[0].tolist() if one >= 0]

    with opened(data) as catalog:
        old, ids = index(catalog)
        assert set(ids) == {3, 4, 5}
    restored = put_back(data, changed)
    assert restored.uids == (old,)
    with opened(data) as catalog:
        new, ids = index(catalog)
        assert new != old and set(ids) == {1, 2}
        collection = catalog.collections.get("default")
        assert catalog.documents.replace(collection, *document(["six", "seven"], "d")).chunk_ids == (3, 4)
        assert index(catalog) == (new, index(catalog)[1])
        nearest = catalog.chunks.found(index(catalog)[1])
        assert {found.chunk.text for found in nearest} == {"one", "two", "six", "seven"}


@pytest.mark.parametrize("uid", ["../..", "/etc", "0" * 32 + "/..", b"\xff" * 32, 7])
def test_only_folders_of_what_was_replaced_are_told(data: Path, changed: Path, tmp_path: Path, uid: object) -> None:
    """A copy may be anybody's, and what it names is deleted: it has no say. Nor has one of another catalog."""
    with closing(sqlite3.connect(changed)) as copy, copy:
        copy.execute("UPDATE collections SET uid = ?", (uid,))
    other = put_back(tmp_path / "other", changed)
    assert other.uids == ()
    with opened(data) as catalog:
        make_collection(catalog, "second")
    with closing(sqlite3.connect(data / "catalog.sqlite")) as catalog, catalog:
        own = catalog.execute("SELECT uid FROM collections WHERE name = 'default'").fetchone()
        catalog.execute("UPDATE collections SET uid = CAST(? AS TEXT) WHERE name = 'second'", (uid,))
    assert put_back(data, changed).uids == own
    with opened(data) as restored:
        assert index_folder(Settings(data_dir=data), restored.collections.get("default").uid).parent == data / "index"


@pytest.mark.parametrize("uid", ["..", "/", "", "a/" + "0" * 30, "0" * 32 + "\n"])
def test_a_folder_of_indexes_has_no_other_name(tmp_path: Path, uid: str) -> None:
    with pytest.raises(CatalogError, match="which ragcache never gives"):
        index_folder(Settings(data_dir=tmp_path), uid)
