from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.compose import close, open_library, opened
from app.errors import CatalogError
from app.settings import Settings, load_settings


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> Settings:
    folders = {"cache_dir": tmp_path / "cache", "data_dir": tmp_path / "data"}
    return load_settings(None, model=str(tiny_folder), dtype="float32", device="cpu", **folders)


def test_threads_share_what_is_loaded_once(settings: Settings) -> None:
    with opened(settings) as (library, models), ThreadPoolExecutor(4) as pool:
        assert models.loaded is None
        collection = library.collection_or_new()
        assert models.loaded is None, "cutting and embedding take no language model"
        assert len({id(one) for one in pool.map(lambda _: models.language, range(4))}) == 1
        assert len({id(one) for one in pool.map(lambda _: library.searcher(collection), range(4))}) == 1
        assert models.loaded is models.language


def test_what_is_closed_is_closed_whatever_a_model_does(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    library, models = open_library(settings)
    with pytest.raises(CatalogError, match="no collection"):
        library.collection()
    closed: list[str] = []
    monkeypatch.setattr(library.catalog, "close", lambda: closed.append("catalog"))
    monkeypatch.setattr(models, "close", lambda: [].pop())
    with pytest.raises(IndexError):
        close(library, models)
    assert closed == ["catalog"]


def test_who_only_looks_makes_no_catalog(settings: Settings) -> None:
    with opened(settings, looking=True) as (library, _):
        assert library.catalog.collections.all() == []
    assert not settings.data_dir.exists()


def test_indexes_of_collections_that_are_gone_are_let_go(settings: Settings) -> None:
    with opened(settings) as (library, _):
        gone = weakref.ref(library.searcher(library.collection_or_new("gone")))
        kept = library.searcher(library.collection_or_new("kept"))
        library.catalog.collections.delete(library.collection("gone"))
        library.searcher(library.collection_or_new("another"))
        gc.collect()
        assert gone() is None
        assert library.searcher(library.collection("kept")) is kept
