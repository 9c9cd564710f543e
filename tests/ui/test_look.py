"""Every page in every state as it looks, in light, dark and on a phone: pictures for people to look at, which lie in
.pytest_cache/d/screenshots, and what nobody should have to look for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests.app.loaders.files import write_pdf
from tests.app.server.uploads import send_samples, sent
from tests.ui.tabs import PHONE, WIDE, Tab, tab
from tests.ui.test_story import PAGES

SHELF, QUESTION, OF_THE_PDF = "handbook", "When was the light first shown?", "Who designed the lighthouse?"
FULL = ("light", "dark", "phone")
LOOKS = {
    "light": (WIDE, "light"),
    "dark": (WIDE, "dark"),
    "phone": (PHONE, "light"),
    "broad": ({"width": 1920, "height": 1080}, "light"),
}
STILL = "() => document.getAnimations().every((one) => one.playState !== 'running')"
SIDEWAYS = "() => document.scrollingElement.scrollWidth - document.documentElement.clientWidth"


@dataclass
class Look:
    tab: Tab
    name: str
    folder: Path

    def shoot(self, state: str) -> None:
        self.tab.settled()
        self.tab.page.mouse.move(0, 0)
        self.tab.page.wait_for_function(STILL)
        self.tab.page.screenshot(path=self.folder / f"{state}-{self.name}.png", animations="disabled")
        assert self.tab.page.evaluate(SIDEWAYS) <= 0, f"{state} is wider than the window"
        assert "Traceback" not in self.tab.text
        assert self.tab.violations() == [], state


@pytest.fixture(scope="module")
def shots(request: pytest.FixtureRequest) -> Path:
    cache = request.config.cache
    assert cache is not None
    return cache.mkdir("screenshots")


@pytest.fixture(scope="module")
def talk(server: httpx2.Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a conversation about documents of several kinds, of which one failed."""
    send_samples(server, SHELF)
    minutes = write_pdf(tmp_path_factory.mktemp("files") / "minutes.pdf", PAGES, "Minutes")
    assert sent(server, "minutes.pdf", minutes.read_bytes(), SHELF)["state"] == "done"
    assert sent(server, "broken.pdf", b"%PDF-1.4 no more", SHELF)["state"] == "failed"
    made = str(server.post("/v1/conversations", json={"collection": SHELF}).json()["id"])
    for question in (QUESTION, OF_THE_PDF):
        answered = server.post(f"/v1/conversations/{made}/messages", json={"question": question}, timeout=120)
        answered.raise_for_status()
    return f"?c={made}"


def empty(look: Look) -> None:
    for state, path in (("empty-chat", ""), ("empty-documents", "documents"), ("empty-cache", "cache")):
        look.tab.go(path)
        look.shoot(state)


def documents(look: Look) -> None:
    look.tab.go("documents")
    look.tab.sees("minutes.pdf")
    look.shoot("documents")
    look.tab.press("minutes.pdf")
    look.tab.sees("Margaret Aldous")
    look.shoot("document")
    look.tab.press("Delete")
    look.tab.sees("It goes with its")
    look.shoot("document-delete")


def chat(look: Look, talk: str) -> None:
    look.tab.go()
    expect(look.tab.page.locator(".rc-suggestion").first).to_be_visible()
    look.shoot("chat-new")
    look.tab.go(talk)
    look.tab.answered()
    look.shoot("chat")
    look.tab.page.locator(".rc-report summary").last.click()
    look.shoot("chat-times")
    sources(look)


def sources(look: Look) -> None:
    shown = look.tab.page.locator(".rc-panel")
    for state, place in (("source-page", r"minutes\.pdf"), ("source-text", r"lighthouse\.md")):
        look.tab.page.get_by_label(re.compile(rf"^Source \d+: {place}")).last.click()
        expect(shown).to_be_visible()
        look.tab.settled()
        look.shoot(state)
        look.tab.page.locator("body").press("Escape")
        expect(shown).to_have_count(0)


def answering(look: Look) -> None:
    before = look.tab.answers.count()
    look.tab.ask("Tell me in many words all that is known about the light.")
    expect(look.tab.answers).to_have_count(before + 1)
    expect(look.tab.answers.last.locator(".rc-answer")).to_contain_text(re.compile(r"\w+ \w+"))
    look.tab.page.screenshot(path=look.folder / f"answering-{look.name}.png", animations="disabled")
    look.tab.answered()
    look.tab.press("Answer without cache")
    expect(look.tab.page.locator(".rc-compare")).to_contain_text("Without the cache")
    look.tab.answered()
    look.shoot("comparison")
    look.tab.press("Edit")
    look.tab.sees("Its answer is replaced.")
    look.shoot("edit")


def cache(look: Look) -> None:
    look.tab.go("cache")
    look.tab.sees("What it was good for")
    look.shoot("cache")
    look.tab.press("Evict")
    look.tab.sees("What is pinned stays")
    look.shoot("cache-evict")
    opened, side = look.tab.page.get_by_test_id("stPopoverBody").bounding_box(), look.tab.side.bounding_box()
    assert opened and side and opened["x"] >= side["x"] + side["width"], "it covers the sidebar"


def settings(look: Look) -> None:
    look.tab.go("settings")
    look.tab.sees("What takes the documents anew")
    look.shoot("settings")


def looks(browser: Browser, url: str, shots: Path, name: str, *states: Callable[[Look], None]) -> None:
    size, scheme = LOOKS[name]
    with tab(browser, url, size, scheme) as seen:
        for state in states:
            state(Look(seen, name, shots))


@pytest.mark.parametrize("name", FULL)
def test_with_nothing_in_it(browser: Browser, url: str, shots: Path, name: str) -> None:
    looks(browser, url, shots, name, empty)


@pytest.mark.parametrize("name", FULL)
def test_with_documents_and_answers(browser: Browser, url: str, shots: Path, talk: str, name: str) -> None:
    looks(browser, url, shots, name, documents, lambda look: chat(look, talk), answering, cache, settings)


def test_on_a_broad_screen(browser: Browser, url: str, shots: Path, talk: str) -> None:
    looks(browser, url, shots, "broad", documents, lambda look: chat(look, talk), cache)
