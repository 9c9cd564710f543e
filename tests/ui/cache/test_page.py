"""The cache page over a real server: what is told before it is done, and done to the collection that was meant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from streamlit.testing.v1 import AppTest

from app import Settings
from tests.app.server.serving import served
from tests.app.server.uploads import sent
from tests.tiny_folder import write_tiny_folder
from ui import access

PATIENCE_S = 60.0
SHELVES = {"harbour": "# Quays\n\nThe quays of Tarrow are old.", "town": "# Wells\n\nThe wells of Varn are deep."}


def script() -> None:
    from ui.cache.page import show

    show(None)


@pytest.fixture
def client(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx2.Client]:
    (tmp_path / "tiny").mkdir()
    tiny = write_tiny_folder(tmp_path / "tiny", smollm2)
    settings = Settings(model=str(tiny), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with served(settings) as client:
        for name, text in SHELVES.items():
            client.post("/v1/collections", json={"name": name}).raise_for_status()
            assert sent(client, "about.md", text, name)["state"] == "done"
        monkeypatch.setenv("RAGCACHE_SERVER", str(client.base_url))
        access.server.cache_clear()
        yield client
    access.server.cache_clear()


@pytest.fixture
def page(client: httpx2.Client) -> AppTest:
    return AppTest.from_function(script, default_timeout=PATIENCE_S)


def shown(page: AppTest) -> str:
    assert not page.exception, page.exception
    return "\n".join(str(one.proto.body) for one in page.get("html"))


def entries(client: httpx2.Client, name: str) -> int:
    return int(client.get(f"/v1/collections/{name}/cache").json()["collection"]["entries"])


def test_what_is_there_is_told(page: AppTest) -> None:
    html = shown(page.run())
    assert all(name in html for name in SHELVES) and "What it was good for" in [one.value for one in page.header]
    assert "when full, what is asked for least for its size goes first" in html


def test_a_click_acts_on_the_collection_that_it_was_meant_for(page: AppTest, client: httpx2.Client) -> None:
    page.query_params["collection"] = "harbour"
    shown(page.run())
    page.checkbox(key="cache-sure-harbour").check().run()
    page.query_params["collection"] = "town"
    page.run()
    assert not page.checkbox(key="cache-sure-town").value
    page.query_params["collection"] = "harbour"
    page.run()
    page.checkbox(key="cache-sure-harbour").check().run()
    button = page.button(key="cache-evict-harbour")
    client.delete("/v1/collections/harbour").raise_for_status()
    shown(button.click().run())
    assert entries(client, "town") > 0


def test_what_is_evicted_goes(page: AppTest, client: httpx2.Client) -> None:
    page.query_params["collection"] = "town"
    page.run()
    page.checkbox(key="cache-sure-town").check().run()
    page.button(key="cache-evict-town").click().run()
    assert "town: 1 entry of KV" in page.success[0].value
    assert (entries(client, "town"), entries(client, "harbour")) == (0, 1)


@pytest.mark.parametrize("nbytes", [1, 10**17])
def test_a_budget_of_any_size_is_shown(page: AppTest, client: httpx2.Client, nbytes: int) -> None:
    client.put("/v1/cache/budgets", json={"ram_bytes": nbytes}).raise_for_status()
    shown(page.run())
