from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitter.documents import lines_as_lf
from splitter.outline import Region, code_regions, html_regions, line_regions, markdown_regions
from splitter.turns import text_regions

MARKS = ("---\n", "k: v\n", "# A\n", "== B ==\n", "C\n---\n", "```\n", "````\n", "~~~\n", "| a |\n", "<h1>D</h1>",
         "<PRE>", "</pre>", "<table", "</table>", "Q: x\n", "A: y\n", "text ", "User: x\n",
         "## Q: x\n", "{'role': 'user'}", "\n", "\n\n", "İ", "   ")  # fmt: skip
BROKEN = st.lists(st.sampled_from(MARKS), max_size=40).map("".join)


def read(text: str, regions: Iterable[Region]) -> list[tuple[str, str]]:
    return [(region.form, text[region.start : region.end].strip()) for region in regions]


@pytest.mark.parametrize("outline", [markdown_regions, text_regions, html_regions, code_regions, line_regions])
@given(text=BROKEN)
def test_regions_follow_each_other_and_hold_everything(outline: Callable[[str], Iterable[Region]], text: str) -> None:
    regions = list(outline(text))
    assert all(before.end <= after.start for before, after in pairwise(regions))
    held = "".join(text[region.start : region.end] for region in regions)
    assert "".join(held.split()) == "".join(text.split())


def test_markdown() -> None:
    text = "# One #\nIntro.\n\n```py\n# no heading\n```\nMore.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nTwo\n---\nEnd."
    assert read(text, markdown_regions(text)) == [
        ("heading", "# One #"),
        ("prose", "Intro."),
        ("whole", "```py\n# no heading\n```"),
        ("prose", "More."),
        ("whole", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("heading", "Two\n---"),
        ("prose", "End."),
    ]


@pytest.mark.parametrize("close", ["---", "...", "--- "])
def test_front_matter_is_no_heading(close: str) -> None:
    front = f"---\ntitle: A\n\n# note\ntags:\n- a\n  - b\ndraft: false\n{close}"
    text = f"{front}\n# One\nIntro."
    assert read(text, markdown_regions(text)) == [("whole", front.strip()), ("heading", "# One"), ("prose", "Intro.")]
    assert read(front, markdown_regions(front)) == [("whole", front.strip())]
    system = lines_as_lf(text.replace("\n", "\r\n"))
    assert [region.form for region in markdown_regions(system)] == ["whole", "heading", "prose"]


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nA: b\n\n---\n",
        "---\nWords of a text.\n\n---\n",
        "---\nNote: a text\nthat goes on.\n---\n",
        "---\nkey: never closed\n",
        "\n---\nkey: not at the start\n---\n",
        "---\n" + "key: value\n" * 201 + "---\n",
        "---\n---\n",
    ],
)
def test_a_thematic_break_opens_no_front_matter(text: str) -> None:
    assert not any(region.form == "whole" for region in markdown_regions(text))


def test_levels_and_titles_of_headings() -> None:
    text = "# One #\n### Three\nOne\n===\nTwo\n---\n = = Wiki two = = \n== Wiki ==\n"
    found = [(region.level, region.title) for region in markdown_regions(text) if region.form == "heading"]
    assert found == [(1, "One"), (3, "Three"), (1, "One"), (2, "Two"), (2, "Wiki two"), (2, "Wiki")]


def test_a_fence_that_nobody_closed_goes_on_to_the_end() -> None:
    text = "Text.\n\n~~~\n# no heading\n```\nmore"
    assert read(text, markdown_regions(text)) == [("prose", "Text."), ("whole", "~~~\n# no heading\n```\nmore")]


def test_examples_of_a_prompt_stay_whole() -> None:
    text = "Classify.\n\nInput: good\nOutput: yes\n\nInput: bad\nOutput: no\n\nNow you."
    assert read(text, markdown_regions(text)) == [
        ("prose", "Classify."),
        ("turn", "Input: good\nOutput: yes"),
        ("turn", "Input: bad\nOutput: no"),
        ("prose", "Now you."),
    ]


def test_html() -> None:
    text = "<H2 id='x'>A <b>title</b></h2><p>Text.</p><table><tr><td>1</table>More.<pre>never closed"
    regions = list(html_regions(text))
    assert read(text, regions) == [
        ("heading", "<H2 id='x'>A <b>title</b></h2>"),
        ("prose", "<p>Text.</p>"),
        ("whole", "<table><tr><td>1</table>"),
        ("prose", "More.<pre>never closed"),
    ]
    assert (regions[0].level, regions[0].title) == (2, "A title")


def test_code_begins_anew_at_the_margin() -> None:
    text = "import x\n\n\ndef f():\n    a\n\n    b\n"
    found = [(text[region.start : region.end].strip(), region.border.name) for region in code_regions(text)]
    assert found == [("import x", "SECTION"), ("def f():\n    a", "SECTION"), ("b", "PARAGRAPH")]
