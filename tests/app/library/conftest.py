from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.library import Library
from app.library.catalog import open_catalog
from app.models import Models
from app.models.folders import resolve_embedder
from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from retriever.embedder import Embedder
from tests.app.library.machines import Machine
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


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def machines(
    request: pytest.FixtureRequest, tiny_folder: Path, tmp_path: Path, parts: TorchModel
) -> Iterator[Sequence[Machine]]:
    """Two over one catalog, each with a data and a cache folder of its own."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/shared.sqlite"
        if request.param == "postgresql":
            server = request.getfixturevalue("postgres_server")
            url = server.create("machines")
            stack.callback(server.drop, "machines")
        found = []
        for name in ("one", "other"):
            settings = make_settings(tiny_folder, tmp_path / name, database_url=SecretStr(url))
            models = stack.enter_context(Models(settings, parts))
            found.append(Machine(Library(settings, stack.enter_context(open_catalog(settings)), models), models))
        yield found
