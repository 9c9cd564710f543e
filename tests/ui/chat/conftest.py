"""A real server behind the page of the chat, started once for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from streamlit.testing.v1 import AppTest

from app import RagPipeline, Settings
from tests.app.filling import fill
from tests.app.server.serving import served
from tests.tiny_folder import write_tiny_folder
from tests.ui.chat.talking import PATIENCE_S, QUESTION, READER, ask, enter, script
from ui import access


@pytest.fixture(scope="module")
def client(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    folder = tmp_path_factory.mktemp("chat")
    tiny = write_tiny_folder(tmp_path_factory.mktemp("tiny"), smollm2)
    settings = Settings(model=str(tiny), data_dir=folder / "data", cache_dir=folder / "cache", max_tokens=12)
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ("lighthouse.md",), "docs")
        fill(pipeline, ("bakery.md",), "other")
        catalog = pipeline.library.catalog
        _, reader = catalog.keys.create("reader", ["read"], collections=[catalog.collections.get("other")])
        _, admin = catalog.keys.create("admin", ["admin"])
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        client.headers[READER] = reader
        yield client


@pytest.fixture
def page(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    monkeypatch.setenv("RAGCACHE_SERVER", str(client.base_url))
    enter(client.headers["Authorization"].removeprefix("Bearer "), monkeypatch)
    yield AppTest.from_function(script, default_timeout=PATIENCE_S)
    access.server.cache_clear()


@pytest.fixture
def talked(client: httpx2.Client) -> Iterator[str]:
    """A conversation with one exchange."""
    made = str(client.post("/v1/conversations", json={"collection": "docs"}).json()["id"])
    ask(client, made, QUESTION)
    yield made
    client.delete(f"/v1/conversations/{made}")
