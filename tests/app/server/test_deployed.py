"""The parts of `packaging/` that run without a container: its check of health, and how its catalog is named."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import yaml

from app import Settings
from app.library.catalog import open_catalog
from tests import postgres
from tests.app.server.serving import beside, served

FOLDER = Path(__file__).parents[3] / "packaging"
KEY = "RAGCACHE_API_KEY"


@pytest.fixture(scope="module")
def check() -> Callable[[str], int]:
    found = runpy.run_path(str(FOLDER / "healthcheck.py"))["main"]
    assert callable(found)
    return found


def test_a_server_without_keys_tells_whether_it_is_ready(check: Callable[[str], int], client: httpx2.Client) -> None:
    assert check(str(client.base_url)) == 0
    assert check("http://127.0.0.1:1") == 1


def test_one_with_keys_tells_those_who_have_one(
    check: Callable[[str], int], sampled: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = beside(sampled, tmp_path)
    with open_catalog(settings) as catalog:
        _, key = catalog.keys.create("health", ["read"])
    with served(settings, {"Authorization": f"Bearer {key}"}) as client:
        url = str(client.base_url)
        assert check(url) == 0, "it lives"
        monkeypatch.setenv(KEY, key)
        assert check(url) == 0
        monkeypatch.setenv(KEY, f"{key}x")
        assert check(url) == 1


def test_the_password_of_the_catalog_stands_beside_its_url(
    postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["server"]["environment"]
    url = str(server["RAGCACHE_DATABASE_URL"])
    own = postgres_server.create("deployed")
    whole = url.replace("catalog:5432/ragcache", own.rpartition("@")[2])
    monkeypatch.setenv("PGPASSWORD", postgres.PASSWORD)
    with open_catalog(Settings(data_dir=tmp_path, database_url=whole)) as catalog:  # type: ignore[arg-type]
        assert catalog.collections.all() == []
