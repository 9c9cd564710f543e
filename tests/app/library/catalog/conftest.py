from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from app.library.catalog import Catalog, open_catalog
from app.library.catalog.records import Collection
from app.settings import Settings
from tests.app.library.catalog.samples import make_collection
from tests.postgres import Server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: Server) -> str:
    """A database that has its tables; each test leaves them empty."""
    url = postgres_server.create("catalog")
    open_catalog(Settings(database_url=SecretStr(url))).close()
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings of an empty catalog, in either kind of database."""
    if request.param == "sqlite":
        yield Settings(data_dir=tmp_path / "data")
        return
    url = request.getfixturevalue("postgres_url")
    yield Settings(data_dir=tmp_path / "data", database_url=SecretStr(url))
    with psycopg.connect(url) as connection:
        connection.execute("TRUNCATE collections, keys, context_caches, departures RESTART IDENTITY CASCADE")


@pytest.fixture
def catalog(settings: Settings) -> Iterator[Catalog]:
    with open_catalog(settings) as catalog:
        yield catalog
        catalog.check_integrity()


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return make_collection(catalog)
