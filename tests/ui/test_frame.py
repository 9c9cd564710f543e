"""The frame in a browser: the door, the pages, texts of others, a server that is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from app import Settings
from app.library.catalog import open_catalog
from app.library.catalog.records import NewMessage
from tests.app.server.serving import served
from tests.app.server.uploads import sent
from tests.tiny_folder import write_tiny_folder
from tests.ui.tabs import PHONE, WIDE, Tab, opened_page, tab

PAGES = ("Chat", "Documents", "Cache", "Settings")
HOSTILE = "![x](http:¦¦evil.example) <b>.md"  # as far as the name of a file may go
IMAGE = "![x](http://evil.example/a.png) [y](http://evil.example) <img src=//evil.example/b onerror=alert(1)>"
SCRIPT = "<script>alert(1)</script>"
OWN = "Tarrow", "Varn"  # a collection of each of two people


@pytest.fixture(scope="module")
def tiny(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("tiny"), smollm2)


@pytest.fixture(scope="module")
def guarded(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The page over a server with keys, and the keys of two people by their collections."""
    folder = tmp_path_factory.mktemp("guarded")
    settings = Settings(model=str(tiny), data_dir=folder / "data", cache_dir=folder / "cache")
    with open_catalog(settings) as catalog:
        _, admin = catalog.keys.create("admin", ["admin"])
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        for name in OWN:
            client.post("/v1/collections", json={"name": name})
            assert sent(client, f"{name}.md", f"# Of {name}\n\nOnly {name} knows it.", name)["state"] == "done"
        with open_catalog(settings) as catalog:
            shelves = {one.name: one for one in catalog.collections.all()}
            keys = {name: catalog.keys.create(name, ["read", "ingest"], collections=[shelves[name]])[1] for name in OWN}
        with opened_page(str(client.base_url)) as url:
            yield url, keys


def enter(tab: Tab, key: str) -> None:
    tab.page.get_by_label("Key", exact=True).fill(key)
    tab.press("Open")


def test_a_key_opens_the_door_of_one_tab(browser: Browser, guarded: tuple[str, dict[str, str]]) -> None:
    url, keys = guarded
    with browser.new_context() as own, tab(own, url) as first, tab(own, url) as second:
        first.go()
        first.sees("This server asks for a key")
        expect(first.side.get_by_role("link", name="Documents")).to_have_count(0)
        enter(first, "rk-000000000000-nobodyhasthiskey")
        first.sees("That key is not known here")
        enter(first, keys["Tarrow"])
        expect(first.side.get_by_role("link")).to_have_count(len(PAGES))
        first.page.reload()
        expect(first.side.get_by_role("link")).to_have_count(len(PAGES))
        second.go("documents")
        second.sees("This server asks for a key")
        first.press("Leave")
        first.sees("This server asks for a key")
        first.page.reload()
        first.sees("This server asks for a key")


def test_two_people_see_nothing_of_each_other(browser: Browser, guarded: tuple[str, dict[str, str]]) -> None:
    url, keys = guarded
    with browser.new_context() as one, browser.new_context() as other, tab(one, url) as mine, tab(other, url) as his:
        for own, tab_of in (("Tarrow", mine), ("Varn", his)):
            tab_of.go("documents")
            enter(tab_of, keys[own])
            tab_of.sees(f"{own}.md")
        mine.walk("Chat")
        mine.ask("What does Tarrow know?")
        mine.answered()
        conversation = mine.page.url.partition("?")[2]
        for path in ("documents", "documents?collection=Tarrow", "documents?document=1", "cache", "settings", ""):
            his.go(path)
            expect(his.side.get_by_role("link")).to_have_count(len(PAGES))
            assert "Tarrow" not in his.text, path
        his.go(f"?{conversation}")
        his.sees("This conversation is not there")
        assert "Tarrow" not in his.text
        assert "Varn" not in mine.text


def test_texts_of_others_do_nothing(somebody: Tab, server: httpx2.Client, bundled: Settings) -> None:
    shelf = "<script>alert(1)<¦script> ![x](¦¦evil.example¦a) <img src=x onerror=alert(1)>"
    assert server.post("/v1/collections", json={"name": shelf}).status_code == 201
    path = httpx2.URL("http://x").copy_with(path=f"/{shelf}").raw_path.decode()[1:].replace("/", "%2F")
    text = f"# {IMAGE}\n\n{SCRIPT} {IMAGE}\n\n| a | b |\n|---|---|\n| {IMAGE} | {SCRIPT} |\n"
    job = sent(server, HOSTILE.replace(" ", "%20"), text, path)
    assert job["state"] == "done", job
    with open_catalog(bundled) as catalog:
        found = catalog.collections.find(shelf)
        assert found is not None
        talk = catalog.conversations.create(found, f"{SCRIPT} {IMAGE}").id
        said = f"{text}\n\n<javascript:alert(1)> http://evil.example/c"
        catalog.conversations.add(talk, [NewMessage("user", f"{SCRIPT} {IMAGE}"), NewMessage("assistant", said)])
    for name in ("", f"?c={talk}", "documents", "cache", "settings"):
        somebody.go(name)
        alive = somebody.page.locator("[src*=evil], [href*='//evil'], [href^=javascript], [onerror], main script")
        assert alive.count() == 0, name
    somebody.go(f"?c={talk}")
    somebody.sees("<img src=//evil.example/b onerror=alert(1)>")
    somebody.sees(SCRIPT)
    assert server.delete(f"/v1/collections/{path}").status_code == 200


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")])
def test_nobody_is_kept_out(browser: Browser, url: str, size: dict[str, int], scheme: str) -> None:
    with tab(browser, url, size, scheme) as seen:
        for name in ("", "documents", "cache", "settings"):
            seen.go(name)
            assert seen.violations() == [], name


def test_a_server_that_is_away_is_told_in_a_sentence(browser: Browser, tiny: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(tiny), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with served(settings) as client:
        port, address = client.base_url.port, str(client.base_url)
    assert port is not None
    with opened_page(address) as url, tab(browser, url) as seen:
        seen.go()
        seen.sees(f"no answer from http://127.0.0.1:{port}: Connection refused")
        assert seen.page.get_by_role("alert").count() == 1
        with served(settings, port=port):
            seen.press("Try again")
            expect(seen.side.get_by_role("link")).to_have_count(len(PAGES))
            expect(seen.page.locator("body")).not_to_contain_text("no answer from")
