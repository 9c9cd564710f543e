"""The first minute: from a page with nothing to ask to an answer from the samples, in two clicks."""

from __future__ import annotations

from playwright.sync_api import expect

from app.samples import read_samples
from tests.ui.tabs import Tab


def test_the_samples_are_a_click_away(somebody: Tab) -> None:
    somebody.go()
    somebody.sees("There is nothing to ask yet")
    somebody.press("Load the sample documents")
    somebody.sees(f"{len(read_samples())} documents are in.")
    somebody.walk("Chat")
    expect(somebody.page.locator(".rc-suggestion").first).to_be_visible()
    somebody.page.locator(".rc-suggestion").first.click()
    assert somebody.answered()
