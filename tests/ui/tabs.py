"""A browser in front of the page: what somebody does there, what he sees, and all that the browser asks for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, expect, sync_playwright

from app.settings import environment
from tests.ports import held_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
ANSWERED_MS = 240_000.0  # a drawn answer of the real model may be a long one
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
SEVERE = ("serious", "critical")
INSIDE = ("data:", "blob:", "about:")  # nobody is asked


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own. One that lacks it fails the tests: .ci/run installs it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found is not None, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as started:
        expect.set_options(timeout=PATIENCE_S * 1000)
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened_page(server: str, key: str | None = None) -> Iterator[str]:
    """`python -m ui` over a server, as `ragcache ui` starts it; its address."""
    with held_port() as port:
        command = [sys.executable, "-m", "ui", "--port", str(port), "--upload-mb", "8"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment(server=server, api_key=key))
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(f"{url}/_stcore/health"), PATIENCE_S)
            yield url
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def _answers(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(url).status_code == 200
    return False


@dataclass
class Tab:
    """Of one person. Behind its block nothing was asked of another origin, and nothing ran that a text brought."""

    page: Page
    url: str
    asked: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.page.on("request", self._heard)
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def _heard(self, request: Request) -> None:
        self.asked.append(request.url)

    def foreign(self) -> list[str]:
        own = urlsplit(self.url).netloc
        return [url for url in self.asked if not url.startswith(INSIDE) and urlsplit(url).netloc != own]

    def go(self, path: str = "") -> None:
        self.page.goto(f"{self.url}/{path}")
        self.opened()

    def opened(self) -> None:
        """After a load: Streamlit runs once more when the tab has told what it remembers."""
        expect(self.page.locator("html[data-ragcache=ready]")).to_be_attached()
        self.settled()

    def settled(self) -> None:
        """Streamlit has nothing to do, as far as it knows: what a click starts, it may not know yet."""
        expect(self.page.locator('[data-testid="stApp"][data-test-connection-state="CONNECTED"]')).to_be_visible()
        expect(self.page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]')).to_be_visible()
        expect(self.page.locator('[data-stale="true"]')).to_have_count(0)  # they are faint, until they are gone

    def walk(self, name: str) -> None:
        """To another page, by the sidebar."""
        self.side.get_by_role("link", name=name).click()
        self.page.wait_for_url(re.compile(rf"/{'' if name == 'Chat' else name.lower()}(\?.*)?$"))
        self.settled()

    @property
    def side(self) -> Locator:
        return self.page.get_by_test_id("stSidebar")

    @property
    def text(self) -> str:
        return self.page.locator("body").inner_text()

    def sees(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.locator("body")).to_contain_text(text)

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    # -- the chat ----------------------------------------------------------------------------------------------------

    @property
    def answers(self) -> Locator:
        return self.page.locator(".rc-said")

    def ask(self, question: str) -> None:
        """Without waiting for the answer."""
        line = self.page.get_by_test_id("stChatInputTextArea")
        line.fill(question)
        line.press("Enter")

    def answered(self) -> str:
        """The last answer, when it is whole."""
        expect(self.page.get_by_role("button", name="Again", exact=True)).to_be_visible(timeout=ANSWERED_MS)
        self.settled()
        return self.answers.last.locator(".rc-answer").inner_text()

    # -- what nobody should have to look for by eye ------------------------------------------------------------------

    def violations(self) -> list[str]:
        """What axe-core finds that keeps somebody out."""
        found: list[Mapping[str, Any]] = Axe().run(self.page).response["violations"]
        return [
            f"{one['id']}: {node['target']} {node['html'][:200]}"
            for one in found
            if one["impact"] in SEVERE
            for node in one["nodes"]
        ]


@contextmanager
def tab(
    browser: Browser | BrowserContext, url: str, size: Mapping[str, int] = WIDE, scheme: str = "light"
) -> Iterator[Tab]:
    """Of somebody new, or one more of somebody's own."""
    if isinstance(browser, Browser):
        with browser.new_context(viewport=dict(size), color_scheme=scheme) as context, tab(context, url) as made:  # type: ignore[arg-type]
            yield made
        return
    page = browser.new_page()
    made = Tab(page, url)
    yield made
    assert (made.foreign(), made.dialogs) == ([], [])
    page.close()
