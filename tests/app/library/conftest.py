from __future__ import annotations

from pathlib import Path

import pytest

from app.models import Models
from app.models.folders import resolve_embedder
from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from retriever.embedder import Embedder
from tests.app.library.shelves import make_settings


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> Settings:
    return make_settings(tiny_folder, tmp_path)


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    return Embedder(resolve_embedder("bundled:minilm"))


@pytest.fixture
def one_embedder(models: Models, embedder: Embedder) -> None:
    """Read once for all tests that ask for it."""
    models.embedder = embedder


@pytest.fixture(scope="session")
def parts(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TorchModel:
    """A model that is loaded once for all of these tests."""
    return load_torch_model(make_settings(tiny_folder, tmp_path_factory.mktemp("parts")))
