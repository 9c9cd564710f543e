"""Answers beside each other: words that differ are marked, times are those that were measured."""

from __future__ import annotations

from typing import Any

import pytest

from ui.chat.comparison import MOST_WORDS, OTHER_PROMPT, beside, differences


def message(content: str, seconds: float | None) -> dict[str, Any]:
    return {"content": content, "report": None if seconds is None else {"ttft_s": seconds}}


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("the old light", "the new light", ("the <mark>old</mark> light", "the <mark>new</mark> light")),
        ("same", "same", ("same", "same")),
        ("<b> a", "<i> a", ("<mark>&lt;b&gt;</mark> a", "<mark>&lt;i&gt;</mark> a")),
        ("a", "a b", ("a", "a<mark> b</mark>")),
        ("", "灯塔", ("", "<mark>灯塔</mark>")),
    ],
)
def test_words_that_differ_are_marked(left: str, right: str, expected: tuple[str, str]) -> None:
    assert differences(left, right) == expected


def test_long_answers_are_not_compared() -> None:
    long = "<a " * (MOST_WORDS + 1)
    assert differences(long, "b")[0] == "&lt;a " * (MOST_WORDS + 1)


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [(0.5, 2.0, "4.0 times as soon"), (2.0, 1.0, "2.0 times as late"), (1.0, 1.01, "equally soon")],
)
def test_the_verdict_is_what_was_measured(ours: float, theirs: float, told: str) -> None:
    html = beside(message("a", ours), message("a", theirs))
    assert told in html and f"{ours:.2f} s" in html and f"{theirs:.2f} s" in html and "are the same" in html


@pytest.mark.parametrize("ours", [None, 0.0])
def test_what_was_not_measured_is_not_told(ours: float | None) -> None:
    html = beside(message("a", ours), message("a b", 1.0))
    assert "times as" not in html and html.count("to the first word") == 1


def test_answers_from_other_passages_say_nothing_of_the_cache() -> None:
    cited: dict[str, Any] = {"document_id": 1, "start": 0, "end": 9}
    left, right = message("a", 0.5) | {"citations": [cited]}, message("a", 2.0) | {"citations": []}
    assert "times as soon" not in beside(left, right) and OTHER_PROMPT in beside(left, right)
    assert "times as soon" in beside(left, right | {"citations": [cited]})
