"""Who listens to the page, or walks it by keys: answers are told as they come, chunks are one stop of the Tab key."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from playwright.sync_api import expect

from tests.app.server.uploads import send_samples
from tests.ui.tabs import Tab
from ui.chat.history import COME, COMING

SHELF = "listening"
HEAR = """() => {
  window.rcHeard = [];
  const hear = (seen) => {
    const live = document.getElementById("rc-live");
    if (live && seen.some((one) => live.contains(one.target))) window.rcHeard.push(live.textContent);
  };
  new MutationObserver(hear).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


@pytest.fixture(scope="module")
def shelf(server: httpx2.Client) -> str:
    send_samples(server, SHELF)
    return f"collection={SHELF}"


def heard(tab: Tab) -> list[Any]:
    found: list[Any] = tab.page.evaluate("() => window.rcHeard.splice(0)")
    return found


def test_an_answer_is_told_when_it_comes_and_not_again(somebody: Tab, shelf: str) -> None:
    somebody.go(f"?{shelf}")
    somebody.page.evaluate(HEAR)
    somebody.ask("When was the light first shown?")
    answer = somebody.answered()
    coming, come = heard(somebody)
    assert coming == COMING and come.startswith(f"{COME} {answer[:8]}")
    somebody.page.locator(".rc-source").first.click()
    expect(somebody.page.locator(".rc-panel")).to_be_visible()
    assert heard(somebody) == []
    somebody.page.reload()
    somebody.opened()
    expect(somebody.page.locator("#rc-live")).to_have_count(0)


def test_the_arrow_keys_lead_from_chunk_to_chunk(somebody: Tab, server: httpx2.Client, shelf: str) -> None:
    listed = server.get(f"/v1/collections/{SHELF}/documents").json()["data"]
    longest = max(listed, key=lambda one: int(one["chunks"]))
    somebody.go(f"documents?{shelf}&document={longest['id']}")
    chunks, stops = somebody.page.locator(".rc-chunk"), somebody.page.locator(".rc-chunk[tabindex='0']")
    last = chunks.count() - 1
    assert last >= 1
    expect(stops).to_have_count(1)
    chunks.first.focus()
    for key, at in (("ArrowLeft", 0), ("ArrowRight", 1), ("End", last), ("ArrowDown", last), ("Home", 0)):
        somebody.page.keyboard.press(key)
        expect(chunks.nth(at)).to_be_focused()
        expect(stops).to_have_count(1)
