"""Pins of context caches: they keep KV from going as long as their cache is there, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.cachecare import prune
from app.chat.contexts import Contexts
from app.library.removal import remove_collection, remove_documents
from ragcache.errors import ConfigError, StoreError
from ragcache.store.folder import CacheFolder
from tests.app.chat.test_contexts import OTHER, TEXTS, make, stored
from tests.app.filling import put


@pytest.fixture
def pipeline(tiny_folder: Path, tmp_path: Path) -> Iterator[RagPipeline]:
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with RagPipeline(settings) as pipeline:
        yield pipeline
        pipeline.models.store.check_integrity()


@pytest.fixture
def contexts(pipeline: RagPipeline) -> Contexts:
    return pipeline.contexts


def test_what_is_pinned_stays_until_it_expires(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Settings(
        model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", ram_bytes=0, disk_bytes=48_000
    )
    with RagPipeline(settings) as pipeline:
        pinned = make(pipeline.contexts, TEXTS[0], pinned=True)
        loose = make(pipeline.contexts, TEXTS[1])
        for number in range(30):
            make(pipeline.contexts, f"{OTHER} {number}")
        assert (len(stored(pipeline, TEXTS[0])), stored(pipeline, TEXTS[1])) == (1, [])
        assert len(pipeline.contexts.segments(loose)) == 1  # a prompt computes it
        with pytest.raises(ConfigError, match="pin less"):
            make(pipeline.contexts, *(f"{OTHER} {number}" for number in range(20)), pinned=True)
        again = make(pipeline.contexts, TEXTS[0])
        pipeline.contexts.expire(pinned)
        for number in range(30):
            make(pipeline.contexts, f"{OTHER} {number} again")
        assert stored(pipeline, TEXTS[0]) == []  # the other cache has not pinned it
        assert len(pipeline.contexts.segments(again)) == 1


def test_no_pin_outlives_a_cache_whose_kv_could_not_be_deleted(
    pipeline: RagPipeline, contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it by a fault, or since the process was killed then."""

    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is away")

    made, folder = make(contexts, *TEXTS, pinned=True), CacheFolder(pipeline.settings.kv_folder)
    assert sum(one.pinned for one in folder.items()) == 3
    with monkeypatch.context() as patch:
        patch.setattr(pipeline.models.store, "drop_chunk", fail)
        contexts.expire(made)
    assert [one.pinned for one in folder.items()] == [False] * 2, "what was computed over a text goes all the same"
    assert prune(pipeline.library, pipeline.models).unreferenced.entries == 1
    assert pipeline.library.catalog.orphans.abandoned() == set()


def test_nothing_is_left_of_one_that_cannot_be_pinned(
    pipeline: RagPipeline, contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("the folder cannot be written")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.models.store, "pin", fail)
        with pytest.raises(StoreError):
            make(contexts, TEXTS[0], pinned=True)
    assert contexts.all() == []


def test_one_whose_pins_cannot_be_taken_away_stays(
    pipeline: RagPipeline, contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is away")

    made, lasting = make(contexts, TEXTS[0], pinned=True), make(contexts, TEXTS[1])
    with monkeypatch.context() as patch:
        patch.setattr(pipeline.models.store, "pin", fail)
        with pytest.raises(StoreError):
            contexts.expire(made)
    assert {one.id for one in contexts.all()} == {made, lasting}
    contexts.expire(made)
    assert [one.id for one in contexts.all()] == [lasting]


@pytest.mark.parametrize("whole", [False, True])
def test_a_document_that_goes_takes_nothing_of_it_along(
    pipeline: RagPipeline, contexts: Contexts, *, whole: bool
) -> None:
    made = make(contexts, TEXTS[0], pinned=True)
    put(pipeline, {"/docs/tower.md": TEXTS[0], "/docs/bread.md": OTHER}, "tales", kv=True)
    collection = pipeline.library.collection("tales")
    if whole:
        remove_collection(pipeline.library, pipeline.models, collection)
    else:
        ids = [one.id for one in pipeline.library.catalog.documents.all(collection)]
        remove_documents(pipeline.library, pipeline.models, collection, ids)
    prune(pipeline.library, pipeline.models)
    folder = CacheFolder(pipeline.settings.kv_folder)
    (kept,) = stored(pipeline, TEXTS[0])
    assert stored(pipeline, OTHER) == []
    assert kept.key in {folder.key(one) for one in folder.items() if one.pinned}
    contexts.expire(made)
    assert stored(pipeline, TEXTS[0]) == []
