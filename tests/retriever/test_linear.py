"""Texts that were made to take for ever: Python sorts marks in the square of their number, and so do some stemmers.
While it does, nothing else of the process runs.
"""

from __future__ import annotations

import unicodedata
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.languages import LONGEST_WORD, SMALL_WORDS, stems
from retriever.words import MOST_MARKS, normal_form, words

ACCENTS, SIGNS, KANA = "\u0300\u0316", "\u093c\u094d", "\uff9e\u0316"
MANY = 2000
NORMALIZE = unicodedata.normalize


def longest_run(text: str) -> int:
    """Marks that are sorted together."""
    marks = map(unicodedata.combining, NORMALIZE("NFKD", text))
    return max(accumulate(marks, lambda run, mark: run + 1 if mark else 0, initial=0))


@pytest.mark.parametrize("marks", [ACCENTS, SIGNS, KANA, "\u0f73\u0f71", "\u1dc0\u0316", "\u0344\u0316"])
@pytest.mark.parametrize("between", ["", "\u200d", "\u034f"])
def test_only_so_many_marks_are_sorted_at_once(marks: str, between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def seen(form: Any, text: str) -> str:
        runs.append(longest_run(text) if len(text) > 1 else 0)
        return NORMALIZE(form, text)

    monkeypatch.setattr(unicodedata, "normalize", seen)
    text = "a" + (marks * MOST_MARKS + between) * (MANY // MOST_MARKS)
    found = words(text)
    monkeypatch.undo()
    assert max(runs) <= MOST_MARKS + 1  # a starter may have one of its own
    assert "a" in found or found[0].startswith("a")


def test_accents_say_nothing_however_many_there_are() -> None:
    assert words("cafe" + ACCENTS * MANY + "s") == ["cafes"]


@given(st.text(st.sampled_from("aeکक日ﬁ가ﾊ-─ 1" + ACCENTS + SIGNS + KANA + "\u0344\u0f73\u200d\u034f"), max_size=60))
def test_no_text_that_anybody_writes_has_other_words(text: str) -> None:
    for form in ("NFC", "NFKD"):
        if longest_run(text) <= MOST_MARKS:
            assert normal_form(form, text) == unicodedata.normalize(form, text)  # type: ignore[arg-type]
        else:
            assert longest_run(normal_form(form, text)) <= MOST_MARKS  # type: ignore[arg-type]


def test_long_lines_of_signs_stay_as_they_are() -> None:
    assert normal_form("NFC", "─" * MANY) == "─" * MANY


@pytest.mark.parametrize("language", SMALL_WORDS)
def test_letters_that_are_no_word_are_not_stemmed(language: str) -> None:
    long = "walkingsen" * (1 + LONGEST_WORD // 10)
    assert stems([long, "a1", "walking"], language) == [long, "a1", *stems(["walking"], language)]
