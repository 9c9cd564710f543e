from __future__ import annotations

import pytest

from splitter import SplitterError
from splitter.documents import STOPS
from splitter.ruler import Ruler
from splitter.units import Border, Marked, check_granularity, coarser, prose_units
from tests.splitter.conftest import Words


def read(text: str) -> list[tuple[str, str]]:
    return shown(text, list(prose_units(text, 0, len(text))))


def shown(text: str, units: list[Marked]) -> list[tuple[str, str]]:
    return [(text[start:end], Border(before).name.lower()) for start, end, before in units]


def test_units_know_what_stands_before_them() -> None:
    text = "One one. Two two.\nThree three.\n\nFour four.\n\n\nFive five.\fSix six."
    assert read(text) == [
        ("One one.", "paragraph"),
        ("Two two.", "sentence"),
        ("Three three.", "line"),
        ("Four four.", "paragraph"),
        ("Five five.", "section"),
        ("Six six.", "section"),
    ]


def test_wrapped_lines_are_one_paragraph() -> None:
    text = (
        "This paragraph was wrapped by a program that\nknows nothing of sentences. It goes on and on in\nthree lines."
    )
    assert [unit for unit, _ in read(text)] == [text[: text.index(" It")], text[text.index("It") :]]


@pytest.mark.parametrize("stop", list(STOPS))
def test_a_line_that_ends_in_a_stop_of_any_script_was_broken_by_its_author(stop: str) -> None:
    text = f"{'अ' * 50}{stop}\n{'अ' * 50}"
    assert read(text) == [(f"{'अ' * 50}{stop}", "paragraph"), ("अ" * 50, "line")]


def test_lists_and_short_lines_are_lines() -> None:
    text = "Things to bring to the mountains in winter\n- a coat\n- two pairs of boots"
    assert [unit for unit, _ in read(text)] == text.split("\n")


def test_what_says_nothing_alone_is_joined() -> None:
    text = "1.\nFirst thing.\n\n(\nSecond thing.\n)\n\n* * *\n\nThird thing."
    assert [unit for unit, _ in read(text)] == [
        "1.\nFirst thing.",
        "(\nSecond thing.\n)",
        "* * *\n\nThird thing.",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sentence", ["All are.", "Boats bob.", "Cats can.", "Dogs dig.", "Eels eat."]),
        ("paragraph", ["All are. Boats bob.", "Cats can.", "Dogs dig. Eels eat."]),
        ("passage", ["All are. Boats bob.\n\nCats can.", "Dogs dig. Eels eat."]),
    ],
)
def test_granularity(name: str, expected: list[str]) -> None:
    text = "All are. Boats bob.\n\nCats can.\n\n\nDogs dig. Eels eat."
    units = coarser(Ruler(text, Words()), prose_units(text, 0, len(text)), check_granularity(name), 100)
    assert [unit for unit, _ in shown(text, list(units))] == expected


def test_what_is_above_the_maximum_breaks_at_weaker_borders() -> None:
    text = "All are. Boats bob.\n\nCats can.\n\n\nDogs dig. Eels eat."
    units = list(coarser(Ruler(text, Words()), prose_units(text, 0, len(text)), Border.SECTION, 6))
    assert shown(text, units) == [
        ("All are. Boats bob.", "paragraph"),
        ("Cats can.", "paragraph"),
        ("Dogs dig. Eels eat.", "section"),
    ]


def test_an_unknown_granularity_is_refused() -> None:
    with pytest.raises(SplitterError, match=r"unknown granularity 'word': choose from sentence, paragraph, passage"):
        check_granularity("word")
