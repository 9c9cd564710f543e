"""A browser that tells when something was painted: by its own clock, from the moment a key was pressed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

from ragcache.errors import ConfigError

try:
    from playwright.sync_api import Page, TimeoutError, expect, sync_playwright
except ModuleNotFoundError as error:
    raise ConfigError("the page is measured in a browser by Playwright: pip install playwright") from error

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS, BETWEEN_KEYS_S = 120_000.0, 0.1
SIZE = {"width": 1280, "height": 800}
LINE = "stChatInputTextArea"
# A frame is on the screen when the task behind its callback runs.
WATCH = """() => {
  const seen = (window.ragcacheBench = { pressed: 0, painted: 0, echoes: [] });
  const frame = (then) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => then(performance.now());
    port2.postMessage(0);
  });
  const words = () => [...document.querySelectorAll(".rc-said .rc-answer")].at(-1)?.textContent ?? "";
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter") Object.assign(seen, { pressed: event.timeStamp, painted: 0 });
    else frame((now) => seen.echoes.push(now - event.timeStamp));
  }, true);
  new MutationObserver(() => {
    if (!seen.pressed || seen.painted || !/\\w/.test(words())) return;
    seen.painted = -1;
    frame((now) => (seen.painted = now));
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
PAINTED = "() => ragcacheBench.painted > 0 && ragcacheBench.painted - ragcacheBench.pressed"
ECHOES = "(wanted) => ragcacheBench.echoes.length >= wanted && ragcacheBench.echoes.splice(0)"
# Nothing is left to do, and what was said before is there: milliseconds since the load began.
READY = f"""() => {{
  const app = document.querySelector('[data-testid="stApp"]'), line = document.querySelector('[data-testid="{LINE}"]');
  const rests = document.documentElement.dataset.ragcache === "ready" && app?.dataset.testScriptState === "notRunning";
  return rests && line && document.querySelector(".rc-said") && performance.now();
}}"""


class ChatTab:
    """Of somebody who asks."""

    def __init__(self, page: Page, url: str):
        self._page, self._url = page, url
        page.set_default_timeout(PATIENCE_MS)

    def begin(self) -> None:
        """In a new conversation."""
        self._page.goto(self._url)
        expect(self._page.locator("html[data-ragcache=ready]")).to_be_attached(timeout=PATIENCE_MS)
        self._rests()
        self._page.evaluate(WATCH)

    def ask(self, question: str) -> float:
        """Milliseconds from Enter to the first painted word. It waits for the whole answer."""
        line = self._page.get_by_test_id(LINE)
        line.fill(question)
        line.press("Enter")
        painted = float(self._page.wait_for_function(PAINTED).json_value())
        expect(self._page.get_by_role("button", name="Again", exact=True)).to_be_visible(timeout=PATIENCE_MS)
        self._rests()
        return painted

    def open(self, conversation: str) -> None:
        self._page.goto(f"{self._url}/?c={conversation}")
        self._page.wait_for_function(READY)

    def reload(self) -> float:
        """Milliseconds until the conversation is there and can go on."""
        self._page.reload(wait_until="commit")
        return float(self._page.wait_for_function(READY).json_value())

    def type(self, keys: int) -> list[float]:
        """Milliseconds from each key to its echo."""
        self._page.evaluate(WATCH)
        line = self._page.get_by_test_id(LINE)
        line.click()
        for place in range(keys):
            line.press("abcdefgh "[place % 9])
            sleep(BETWEEN_KEYS_S)  # so that each has a frame of its own
        return list(map(float, self._page.wait_for_function(ECHOES, arg=keys).json_value()))

    def _rests(self) -> None:
        resting = '[data-testid="stApp"][data-test-script-state="notRunning"]'
        expect(self._page.locator(resting)).to_be_visible(timeout=PATIENCE_MS)


def browser_program(named: Path | None) -> str:
    """Raises ConfigError where there is none."""
    wanted = PROGRAMS if named is None else (str(named),)
    found = next(filter(None, map(shutil.which, wanted)), None)
    if found is None:
        raise ConfigError(f"there is no browser {' or '.join(wanted)}: install Chromium, or name one by --browser")
    return found


@contextmanager
def chat_tab(program: str, url: str) -> Iterator[ChatTab]:
    """Raises ConfigError where the page does not do what is asked in time."""
    own = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox refuses root
    with sync_playwright() as started, started.chromium.launch(executable_path=program, args=own) as chromium:
        try:
            yield ChatTab(chromium.new_page(viewport=SIZE), url)  # type: ignore[arg-type]
        except TimeoutError as error:
            raise ConfigError(f"the page did not do in {PATIENCE_MS / 1e3:.0f} s what was asked: {error}") from error
