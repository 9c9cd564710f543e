"""Index files without what was deleted."""

from __future__ import annotations

import pytest

from app.cachecare import prune
from app.library import Library, indexes
from app.library.catalog.records import Collection
from app.library.kv_removal import KvLoss
from app.library.removal import remove_collection
from app.models import Models
from ragcache.errors import StoreError
from retriever import RetrieverError
from retriever.derived import DerivedIndex
from retriever.generations import Generations
from retriever.keyword_index import KeywordIndex
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


def test_a_collection_that_is_deleted_meanwhile_gets_no_files_back(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection, other = one_short(library, models), one_short(library, models, "other")
    save = DerivedIndex.save

    def late(index: DerivedIndex) -> bool:
        if library.catalog.collections.find("default"):
            remove_collection(library, models, collection)
        return save(index)

    monkeypatch.setattr(DerivedIndex, "save", late)
    indexes.forget_all(library)
    assert not library.index_folder(collection).exists()
    assert library.index_folder(other).exists() and not told(library, other)


def test_what_is_not_trusted_is_deleted_and_not_built_again(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an older version: whoever opens it builds it anew."""
    collection = one_short(library, models)
    folder = library.index_folder(collection)
    with monkeypatch.context() as patch:
        patch.setattr("retriever.keyword_index.IDENTITY", "words 0")
        patch.setattr(KeywordIndex, "_add", None)
        indexes.forget_all(library)
    assert not [*folder.glob("keywords.*")] and [*folder.glob("vectors.*")]
    assert not told(library, collection)


def test_one_that_is_open_is_written_instead(library: Library, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = one_short(library, models)
    library.searcher(collection).keywords.catch_up(library.catalog.source(collection))
    (manifest,) = library.index_folder(collection).glob("keywords.json")
    manifest.write_text("{}")
    indexes.forget_all(library)
    assert not told(library, collection) and manifest.exists()


def test_files_that_a_killed_writer_has_left_go_too(library: Library, models: Models) -> None:
    collection = fill(library, models, "default")
    indexes.rebuild(library, collection)
    folder = library.index_folder(collection)
    there = sorted(folder.glob("*.*.*"))
    for one in there:  # a generation that a manifest named before
        one.with_name(one.name.replace(".1.", ".0.")).write_bytes(one.read_bytes())
    (folder / "keywords.json").unlink()  # a file that is not trusted was about to be deleted
    indexes.forget_all(library)
    assert sorted(folder.glob("*.*.*")) == [one for one in there if not one.name.startswith("keywords")]


def test_it_ends_between_two_indexes(library: Library, models: Models) -> None:
    collection = one_short(library, models)
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(told(library, collection))
        return len(asked) > 1

    indexes.forget_all(library, stopped)
    assert asked == [2, 1] and told(library, collection) == 1


def test_a_machine_that_was_away_for_long_forgets_too(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its indexes are behind a log that was shortened since: they are made again."""
    collection = one_short(library, models)
    monkeypatch.setattr("app.library.catalog.chunks.LEAST_LOG", 1)
    monkeypatch.setattr("app.library.catalog.chunks.LOG_PART", 0)
    with library.catalog.alone(collection):
        library.catalog.runs.finish(library.catalog.runs.start(collection), "done", {})
    source = library.catalog.source(collection)
    assert len(source.retired(0)) == 1 and told(library, collection) == 2
    indexes.forget_all(library)
    assert not told(library, collection)
    with library.searching(collection) as searcher:
        searcher.catch_up()
        assert searcher.vectors.live == searcher.keywords.live == source.position().live == 2
