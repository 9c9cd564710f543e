from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.compose import Parts, load_parts
from app.settings import Settings
from app.workspace import Workspace
from tests.app.maintenance.shelves import make_settings


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> Settings:
    return make_settings(tiny_folder, tmp_path)


@pytest.fixture(scope="session")
def parts(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """A model that is loaded once for all of these tests."""
    return load_parts(make_settings(tiny_folder, tmp_path_factory.mktemp("parts")))


@pytest.fixture
def workspace(settings: Settings, parts: Parts) -> Iterator[Workspace]:
    with Workspace(settings) as workspace:
        workspace.parts = parts
        yield workspace
        workspace.catalog.check_integrity()
        if store := Workspace.store.peek(workspace):
            store.check_integrity()
