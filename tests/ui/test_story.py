"""The whole way of somebody who has never seen the page: from nothing to an answer whose document goes again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import expect

from tests.app.loaders.files import write_docx, write_pdf
from tests.ui.conftest import ANSWER_TOKENS
from tests.ui.tabs import Tab

PAGES = (
    ["Minutes of the harbour board of Tarrow", "", "The board met in the customs house. The herring were late."],
    ["The lighthouse on Varn Skerry", "", "The lighthouse was designed by the engineer Margaret Aldous.",
     "She had worked on canal locks. The light was first shown on 1 September 1846."],
)  # fmt: skip
BREAD = [("Title", "The bakery"), ("Normal", "The starter of the rye bread is called Berta. It is fed on Sundays.")]
FACT = "Who designed the lighthouse?"
LONG = "Tell me in many words all that is known about the lighthouse and the light."
SHELF = "documents"


def write_files(folder: Path) -> list[Path]:
    broken = folder / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 no more")
    return [
        write_pdf(folder / "minutes.pdf", PAGES, "Minutes"),
        write_docx(folder / "bakery.docx", BREAD),
        broken,
    ]


def test_from_an_empty_page_to_a_document_that_is_cited_no_more(
    somebody: Tab, server: httpx2.Client, tmp_path: Path
) -> None:
    somebody.go()
    somebody.sees("There is nothing to ask yet")
    upload(somebody, write_files(tmp_path))
    ask_and_look(somebody)
    reload_amid(somebody, server)
    stop(somebody, server)
    follow_up(somebody)
    compare(somebody)
    export(somebody)
    delete(somebody)


def upload(tab: Tab, files: list[Path]) -> None:
    tab.page.get_by_role("link", name="Add documents").click()
    tab.sees("Nothing is here yet")
    tab.page.locator("input[type=file]").first.set_input_files(files)
    jobs = tab.page.locator(".rc-job")
    expect(jobs.filter(has_text="broken.pdf")).to_contain_text("is damaged")
    expect(tab.page.get_by_label("Hide broken.pdf")).to_be_visible()
    tab.sees("2 documents are in.")
    rows = tab.page.locator(".rc-table tbody tr")
    expect(rows.filter(has_text="minutes.pdf")).to_contain_text("ready")
    expect(rows.filter(has_text="bakery.docx")).to_contain_text("ready")


def ask_and_look(tab: Tab) -> None:
    tab.page.get_by_role("link", name="Ask about it").click()
    tab.ask(FACT)
    begun = words_of(tab)
    answer = tab.answered()
    assert answer.startswith(begun[:20]) and len(answer) > len(begun), "it came all at once"
    tab.page.get_by_label(re.compile(r"^Source \d+: minutes\.pdf, (p\.|page) 2")).first.click()
    picture = tab.page.locator(".rc-panel .rc-page img")
    expect(picture).to_have_attribute("alt", re.compile("Page 2"))
    image, box = picture.bounding_box(), tab.page.locator(".rc-panel .rc-box").first.bounding_box()
    assert image and box and image["y"] <= box["y"] < image["y"] + image["height"] / 3, "the lines are at its top"
    place = tab.page.locator(".rc-panel header").inner_text()
    tab.page.locator("body").press("n" if "1 of" in place else "p")
    expect(tab.page.locator(".rc-panel header")).not_to_have_text(place)
    tab.page.locator("body").press("Escape")
    expect(tab.page.locator(".rc-panel")).to_have_count(0)


def reload_amid(tab: Tab, server: httpx2.Client) -> None:
    tab.ask(LONG)
    begun = words_of(tab)
    tab.page.reload()
    assert tab.answered().startswith(begun[:20])
    assert len(messages(server, tab)) == 4, "it was asked once"


def stop(tab: Tab, server: httpx2.Client) -> None:
    tab.ask(f"{LONG} Begin with the herring.")
    words_of(tab)
    tab.press("Stop")
    tab.answered()
    card = server.get(f"/v1/conversations/{conversation(tab)}").json()
    assert card["answering"] is False
    assert messages(server, tab)[-1]["report"]["answer_tokens"] < ANSWER_TOKENS


def follow_up(tab: Tab) -> None:
    tab.ask("And when was it first shown?")
    tab.answered()
    expect(tab.page.locator(".rc-question").last).to_have_text("And when was it first shown?")


def compare(tab: Tab) -> None:
    tab.press("Answer without cache")
    sides = tab.page.locator(".rc-compare section")
    expect(sides).to_have_count(2)
    tab.answered()
    for at in (0, 1):
        expect(sides.nth(at)).to_contain_text(re.compile(r"[0-9]\.[0-9]+ s to the first word"))


def export(tab: Tab) -> None:
    tab.page.get_by_test_id("stPopoverButton").first.click()
    with tab.page.expect_download() as downloaded:
        tab.press("Export as Markdown")
    text = downloaded.value.path().read_text(encoding="utf-8")
    assert FACT in text and "minutes.pdf" in text
    tab.page.keyboard.press("Escape")


def delete(tab: Tab) -> None:
    tab.walk("Documents")
    tab.press("minutes.pdf")
    tab.press("Delete")
    tab.press("Delete it")
    tab.sees(re.compile(r"minutes\.pdf is deleted"))
    expect(tab.page.locator(".rc-table")).not_to_contain_text("minutes.pdf")
    tab.walk("Chat")
    tab.ask(FACT)
    tab.answered()
    sources = tab.answers.last.locator(".rc-chip")
    expect(sources.first).to_contain_text("bakery.docx")
    expect(sources.filter(has_text="minutes.pdf")).to_have_count(0)


def words_of(tab: Tab) -> str:
    """What has come of an answer that is on its way."""
    words = tab.answers.last.locator(".rc-answer")
    expect(tab.page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    expect(words).to_contain_text(re.compile(r"\w+ \w+"))
    found = words.inner_text()
    expect(tab.page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    return found


def conversation(tab: Tab) -> str:
    found = re.search(r"[?&]c=(\w+)", tab.page.url)
    assert found is not None, tab.page.url
    return found[1]


def messages(server: httpx2.Client, tab: Tab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get(f"/v1/conversations/{conversation(tab)}/messages").json()["data"]
    return found
