"""What a bucket has of texts that another machine has deleted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.library import Library
from app.library.catalog import open_catalog
from app.models import Models
from app.models.loading import TorchModel
from app.settings import Settings
from ragcache.store.remote.store import SharedStore
from ragcache.types import VariantKey
from tests.app.library.machines import Machine
from tests.app.library.shelves import BOOKS, fill, make_settings

RYE, LAMPS = BOOKS.values()


@pytest.fixture
def settings(machines: Sequence[Machine], tiny_folder: Path, tmp_path: Path) -> Settings:
    """Of a third one, with a bucket."""
    url = machines[0].library.settings.database_url
    return make_settings(tiny_folder, tmp_path / "third", database_url=url, remote=f"file://{tmp_path}/b")


def test_what_is_in_the_bucket_otherwise_stays(
    machines: Sequence[Machine], settings: Settings, tmp_path: Path, parts: TorchModel
) -> None:
    """Who deleted the text has told the bucket: what is there by now, another machine ingests again."""
    one, _ = machines
    collection = fill(one.library, one.models)
    fourth = settings.model_copy(update={"cache_dir": tmp_path / "fourth"})
    with Models(fourth, parts) as models, open_catalog(fourth) as catalog:
        Machine(Library(fourth, catalog, models), models).captured(*RYE)
        assert isinstance(models.store, SharedStore) and models.store.settle(60)
        keys = [
            key
            for text in RYE
            for key in models.store.everywhere(VariantKey("", "", (), models.template.chunk(text).hash))
        ]
    there = {*(tmp_path / "b").rglob("*.kv")}
    with Models(settings, parts) as models, open_catalog(settings) as catalog:
        third = Machine(Library(settings, catalog, models), models)
        assert isinstance(models.store, SharedStore)
        assert all(models.store.get(key) for key in keys) and models.store.settle(60)
        assert third.files == {key.digest for key in keys}
        one.remove(collection, "/books/rye.txt")
        assert third.follow() == 2 and not third.files and models.store.settle(60)
    assert {*(tmp_path / "b").rglob("*.kv")} == there and len(there) >= 2


def test_what_it_has_sent_to_the_bucket_goes_from_there(
    machines: Sequence[Machine], settings: Settings, tmp_path: Path, parts: TorchModel
) -> None:
    """Whoever deleted the text could not know of it, whenever that came there and whatever process had sent it."""
    one, _ = machines
    collection = fill(one.library, one.models)
    one.remove(collection, "/books/rye.txt")
    with Models(settings, parts) as models, open_catalog(settings) as catalog:
        third = Machine(Library(settings, catalog, models), models)
        third.captured(*RYE)
        third.captured(*LAMPS)
        assert isinstance(models.store, SharedStore) and models.store.settle(60)
        assert len([*(tmp_path / "b").rglob("*.kv")]) == 6, "the System segment's too"
    with Models(settings, parts) as models, open_catalog(settings) as catalog:
        third = Machine(Library(settings, catalog, models), models)
        assert third.follow() == 2 and isinstance(models.store, SharedStore) and models.store.settle(60)
        assert len([*(tmp_path / "b").rglob("*.kv")]) == 4
