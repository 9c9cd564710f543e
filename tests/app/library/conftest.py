from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.library import Library
from app.library.catalog import open_catalog
from app.models import Models
from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from tests.app.library.shelves import make_settings


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> Settings:
    return make_settings(tiny_folder, tmp_path)


@pytest.fixture(scope="session")
def parts(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TorchModel:
    """A model that is loaded once for all of these tests."""
    return load_torch_model(make_settings(tiny_folder, tmp_path_factory.mktemp("parts")))


@pytest.fixture
def models(settings: Settings, parts: TorchModel) -> Iterator[Models]:
    with Models(settings, parts) as models:
        yield models
        if store := Models.store.peek(models):
            store.check_integrity()


@pytest.fixture
def library(settings: Settings, models: Models) -> Iterator[Library]:
    with open_catalog(settings) as catalog:
        yield Library(settings, catalog, models)
        catalog.check_integrity()
