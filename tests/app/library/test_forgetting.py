"""Index files without what was deleted."""

from __future__ import annotations

import pytest

from app.cachecare import prune
from app.library import Library, indexes
from app.library.catalog.records import Collection
from app.library.kv_removal import KvLoss
from app.models import Models
from ragcache.errors import StoreError
from retriever import RetrieverError
from retriever.generations import Generations
from retriever.source import Position
from retriever.vector_index import VectorIndex
from tests.app.library.shelves import fill


def one_short(library: Library, models: Models, name: str = "default") -> Collection:
    """A collection that has lost a document since its indexes were written."""
    collection = fill(library, models, name)
    indexes.rebuild(library, collection)
    (lamps, *_) = library.catalog.documents.all(collection)
    library.catalog.documents.delete(collection, [lamps.id])
    return collection


def told(library: Library, collection: Collection) -> int:
    """Manifests of index files that tell of what is deleted."""
    live = library.catalog.source(collection).position().live
    there = [path.read_text() for path in library.index_folder(collection).glob("*.json")]
    return sum(f'"live": {live},' not in one for one in there)


def test_files_that_cannot_be_read_keep_no_others(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = one_short(library, models, "bad"), one_short(library, models, "good")
    position = Generations.position

    def fail(files: Generations, identity: str) -> Position | None:
        if files.folder == library.index_folder(bad):
            raise PermissionError(13, "not yours")
        return position(files, identity)

    monkeypatch.setattr(Generations, "position", fail)
    with pytest.raises(RetrieverError, match=f"cannot read an index in .*{bad.uid}: .*not yours"):
        indexes.forget_all(library)
    assert told(library, bad) and not told(library, good)


def test_kv_that_cannot_be_deleted_is_told_where_an_index_fails_too(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_short(library, models)

    def full(index: VectorIndex, path: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(VectorIndex, "_write", full)
    with pytest.raises(RetrieverError, match="no space left"):
        prune(library, models)
    monkeypatch.setattr("app.cachecare.drop_kv", lambda *_, **__: KvLoss(fault=StoreError("the file is held")))
    with pytest.raises(StoreError, match="the file is held"):
        prune(library, models)
