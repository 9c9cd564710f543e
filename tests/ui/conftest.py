"""A browser, a server with the bundled models, and the page over it: started once for the tests of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser

from app import Settings
from tests.app.server.serving import served
from tests.ui.tabs import Tab, chromium, opened_page, tab

ANSWER_TOKENS = 96  # some seconds of an answer: time to stop it, to reload amid it


@pytest.fixture(autouse=True)
def main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """AppTest makes its script the main module and leaves it; a process that a later test spawns would run that."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture(scope="module")  # Playwright's loop counts as running as long as it lives: no other file could run one
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def bundled(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Of a server with nothing in it."""
    folder = tmp_path_factory.mktemp("bundled")
    return Settings(model=str(smollm2), data_dir=folder / "data", cache_dir=folder / "cache", max_tokens=ANSWER_TOKENS)


@pytest.fixture(scope="module")
def server(bundled: Settings) -> Iterator[httpx2.Client]:
    """Without keys."""
    with served(bundled) as client:
        yield client


@pytest.fixture(scope="module")
def url(server: httpx2.Client) -> Iterator[str]:
    with opened_page(str(server.base_url)) as url:
        yield url


@pytest.fixture
def somebody(browser: Browser, url: str) -> Iterator[Tab]:
    with tab(browser, url) as made:
        yield made
