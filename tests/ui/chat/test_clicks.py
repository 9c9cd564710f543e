"""While a question waits, for its turn or its first token, a click ends what the page asks of the server for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from app import RagPipeline, Settings
from app.server.service import Service
from tests.app.filling import fill
from tests.app.server.serving import serving
from tests.app.stalling import stalling
from tests.tiny_folder import write_tiny_folder
from tests.ui.tabs import Tab, tab
from tests.waiting import wait_until
from ui.chat.turn import STOPPED

QUESTION = "Who designed the lighthouse?"
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def service(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """Of one answer at a time."""
    folder = tmp_path_factory.mktemp("clicks")
    tiny = write_tiny_folder(tmp_path_factory.mktemp("tiny"), smollm2)
    settings = Settings(model=str(tiny), data_dir=folder / "data", cache_dir=folder / "cache", max_tokens=12)
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ("lighthouse.md",), "docs")
    return Service(settings.model_copy(update={"serve_concurrent": 1}))


@pytest.fixture(scope="module")
def server(service: Service) -> Iterator[httpx2.Client]:
    with serving(service) as client:
        yield client


def answering(client: httpx2.Client) -> list[str]:
    return [str(one["id"]) for one in client.get("/v1/conversations").json()["data"] if one["answering"]]


def asks(somebody: Tab) -> str:
    """Of what conversation."""
    somebody.go("?collection=docs")
    somebody.ask(QUESTION)
    somebody.page.wait_for_url("**c=*")
    expect(somebody.page.locator(".rc-question")).to_have_text(QUESTION)
    return somebody.page.url.split("c=")[1].split("&")[0]


def test_who_opens_another_page_follows_no_more_and_finds_the_answer_again(
    somebody: Tab, server: httpx2.Client, service: Service
) -> None:
    def followers() -> int:
        found = service.generations.find(name)
        return len(found._listeners) if found else 0

    with stalling() as going_on:
        name = asks(somebody)
        wait_until(lambda: followers() == 1, PATIENCE_S, lambda: f"{followers()} follow")
        somebody.walk("Documents")
        wait_until(lambda: not followers(), PATIENCE_S, lambda: f"{followers()} follow")
        assert answering(server) == [name] and not going_on.is_set()
        going_on.set()
        somebody.page.go_back()
        somebody.answered()
    assert len(server.get(f"/v1/conversations/{name}/messages").json()["data"]) == 2


def test_what_waits_for_its_turn_is_left_for_a_page_and_taken_back(
    browser: Browser, url: str, somebody: Tab, server: httpx2.Client
) -> None:
    with stalling() as going_on, tab(browser, url) as other:
        first = asks(other)
        wait_until(lambda: answering(server) == [first], PATIENCE_S)
        name = asks(somebody)
        somebody.walk("Documents")
        somebody.page.go_back()
        expect(somebody.page.locator(".rc-question")).to_have_text(QUESTION)
        somebody.press("Stop")
        somebody.sees(STOPPED)
        assert answering(server) == [first] and not going_on.is_set()
        going_on.set()
        other.answered()
        somebody.press("Send it again")
        somebody.answered()
    assert len(server.get(f"/v1/conversations/{name}/messages").json()["data"]) == 2
