"""Context caches that somebody deletes while they are made: nothing of them stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.errors import NotFound
from ragcache.errors import StoreError
from ragcache.store.folder import CacheFolder
from ragcache.types import Variant, VariantKey
from tests.app.chat.test_contexts import ANN, OTHER, TEXTS, make, stored
from tests.app.filling import put


@pytest.fixture
def pipeline(tiny_folder: Path, tmp_path: Path) -> Iterator[RagPipeline]:
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with RagPipeline(settings) as pipeline:
        yield pipeline
        pipeline.models.store.check_integrity()


def deleted_at(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch, count: int, who: tuple[str, str]) -> list[bool]:
    """The only cache of `who` is deleted before so many variants have been put -> one entry for each that is put."""
    store, put_seen, came = pipeline.models.store, pipeline.models.store.put, list[bool]()

    def put_late(variant: Variant, *, wanted: bool = False) -> bool:
        came.append(wanted)
        if len(came) == count:
            (made,) = pipeline.contexts.all(who[0])
            pipeline.contexts.expire(made.id, who[0])
        return put_seen(variant, wanted=wanted)

    monkeypatch.setattr(store, "put", put_late)
    return came


@pytest.mark.parametrize(
    ("count", "who", "pinned"),  # the first is the System segment's
    [(2, ("", ""), True), (3, ("", ""), False), (3, ANN, True), (4, ("", ""), True)],
)
def test_nothing_stays_of_one_that_is_deleted_while_it_is_made(
    pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch, count: int, who: tuple[str, str], *, pinned: bool
) -> None:
    came = deleted_at(pipeline, monkeypatch, count, who)
    with pytest.raises(NotFound, match="no context cache"):
        make(pipeline.contexts, *TEXTS, OTHER, who=who, pinned=pinned)
    assert len(came) == count, "no more is computed"
    assert [stored(pipeline, text, who[1]) for text in (*TEXTS, OTHER)] == [[], [], []]
    assert not any(one.pinned for one in CacheFolder(pipeline.settings.kv_folder).items())
    assert pipeline.library.catalog.orphans.abandoned() == set()


def test_what_a_document_has_stays(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    put(pipeline, {"/docs/bread.md": OTHER}, "bread", kv=True)
    deleted_at(pipeline, monkeypatch, 2, ("", ""))
    with pytest.raises(NotFound, match="no context cache"):
        make(pipeline.contexts, TEXTS[0], OTHER, pinned=True)
    assert (stored(pipeline, TEXTS[0]), len(stored(pipeline, OTHER))) == ([], 1)


@pytest.mark.parametrize("fails", [False, True])
def test_no_pin_stays_that_comes_behind_the_deletion(
    pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Else the next entry of that text had it; also where the making fails for another reason."""
    contexts, pin = pipeline.contexts, pipeline.models.store.pin

    def pin_late(key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        late = pinned and bool(stored(pipeline, TEXTS[0])) and contexts.all()
        if late:
            contexts.expire(late[0].id)
        pin(key, pinned, owner=owner, seconds=seconds)
        if late and fails:
            raise StoreError("the folder cannot be written")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.models.store, "pin", pin_late)
        with pytest.raises(StoreError if fails else NotFound):
            make(contexts, *TEXTS, pinned=True)
    make(contexts, *TEXTS)
    assert [one.pinned for one in CacheFolder(pipeline.settings.kv_folder).items()] == [False] * 3
