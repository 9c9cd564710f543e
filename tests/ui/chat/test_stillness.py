"""Somebody reads while an answer comes: nothing that he reads may move. And what he copies is what was said."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from playwright.sync_api import expect

from tests.app.server.uploads import send_samples
from tests.ui.tabs import Tab
from tests.waiting import wait_until

SHELF = "stillness"
QUESTIONS = (
    "When was the light first shown?",
    "Tell me in many words all that is known about the light.",
    "Who keeps the bakery, and what is baked there on each day of the week?",
)
# What moved against the window, and was not scrolled, since the last look: each by whether it was the row of buttons
# below the answer, which is to go down as that grows. And the questions that stood there in each frame.
WATCH = """() => {
  window.rcMoved = [];
  new PerformanceObserver((seen) => {
    for (const shift of seen.getEntries())
      for (const { node, previousRect, currentRect } of shift.sources) {
        if (!node?.isConnected) continue; // a button that has gone
        const element = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
        const buttons = element?.closest(".st-key-chat-actions") || element?.querySelector(".st-key-chat-actions");
        window.rcMoved.push([Boolean(buttons), element?.className ?? "", previousRect.y, currentRect.y]);
      }
  }).observe({ type: "layout-shift" });
  window.rcFrames = [[]];
  const frame = () => {
    const shown = [...document.querySelectorAll(".rc-question")].map((one) => one.textContent);
    if (shown.join() !== window.rcFrames.at(-1).join()) window.rcFrames.push(shown);
    requestAnimationFrame(frame);
  };
  frame();
}"""
HIDE = "() => Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })"


@pytest.fixture(scope="module")
def shelf(server: httpx2.Client) -> str:
    send_samples(server, SHELF)
    return f"?collection={SHELF}"


def moved(tab: Tab) -> list[Any]:
    found: list[Any] = tab.page.evaluate("() => window.rcMoved.splice(0)")
    return [one for one in found if not one[0]]


def test_nothing_that_is_read_moves_or_goes_while_tokens_come(somebody: Tab, shelf: str) -> None:
    somebody.go(shelf)
    expect(somebody.page.locator(".rc-suggestion").first).to_be_visible()
    somebody.page.evaluate(WATCH)
    for said, question in enumerate(QUESTIONS, 1):
        somebody.ask(question)
        expect(somebody.page.locator(".rc-question")).to_have_count(said)
        expect(somebody.answers).to_have_count(said)
        expect(somebody.page.locator(".rc-suggestion:visible")).to_have_count(0)
        moved(somebody)  # what the question itself took its place from
        somebody.answered()
        assert moved(somebody) == []
    frames = somebody.page.evaluate("() => window.rcFrames")
    assert frames[-1] == list(QUESTIONS)
    assert all(set(one) <= set(other) for one, other in pairwise(frames)), f"some was gone for a moment: {frames}"


def test_an_answer_is_copied_as_it_was_written(somebody: Tab, server: httpx2.Client, shelf: str) -> None:
    somebody.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    somebody.go(shelf)
    somebody.ask(QUESTIONS[0])
    somebody.answered()
    name = re.sub(r".*[?&]c=([^&]*).*", r"\1", somebody.page.url)
    said = server.get(f"/v1/conversations/{name}/messages").json()["data"][-1]["content"]
    for hides in (False, True):  # a page that comes over http from elsewhere has no clipboard
        somebody.page.evaluate("() => navigator.clipboard.writeText('nothing')")
        if hides:
            somebody.page.evaluate(HIDE)
        somebody.page.get_by_role("button", name="Copy the answer").last.click()
        expect(somebody.page.locator(".rc-copy").last).to_have_text("Copied")
        somebody.page.evaluate("() => delete navigator.clipboard")
        assert somebody.page.evaluate("() => navigator.clipboard.readText()") == said
        expect(somebody.page.locator(".rc-copy").last).to_have_text("Copy")


def test_times_that_are_opened_are_in_sight(somebody: Tab, shelf: str) -> None:
    somebody.go(shelf)
    for said, question in enumerate(QUESTIONS, 1):
        somebody.ask(question)
        expect(somebody.page.locator(".rc-question")).to_have_count(said)  # or the last answer would do for its own
        somebody.answered()
    somebody.page.locator(".rc-report summary").last.click()
    last, line = somebody.page.locator(".rc-times tr").last, somebody.page.get_by_test_id("stChatInput")
    expect(last).to_be_in_viewport()

    def is_above() -> bool:
        shown, below = last.bounding_box(), line.bounding_box()
        return bool(shown and below and shown["y"] + shown["height"] <= below["y"])

    wait_until(is_above, 10, lambda: "it lies behind the line where one writes")  # the page hears of a click later
