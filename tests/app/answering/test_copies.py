"""Which texts say the same and count once, and which do not."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.selection import Limits, beside, canonical, select
from tests.app.answering.test_selection import found, numbers

TEXT = " ".join(f"word{place}" for place in "abcdefghijklmnopqrstuvwxyz") + " said the keeper of the light"

WRAPPED = TEXT.replace(" said", "\nsaid")


def distinct(*texts: str, kind: str = "prose") -> int:
    hits = [found(number, text=text, kind=kind) for number, text in enumerate(texts)]
    return len(select(hits, Limits(len(hits))).chosen)


@pytest.mark.parametrize(
    "dressed",
    [
        "\n\n".join(["", *TEXT.split(), "\t"]),
        TEXT.replace(" said", "\r\nsaid"),
        TEXT.replace(" ", "  \n"),
    ],
    ids=["blank lines", "another system's line", "lines"],
)
def test_what_says_the_same_counts_once(dressed: str) -> None:
    assert distinct(TEXT, dressed) == distinct(dressed, TEXT) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{TEXT} 5", f"{TEXT} 6"),
        (f"{TEXT} 5", TEXT),
        (f"{TEXT} -5", f"{TEXT} 5"),
        (f"{TEXT} $5", f"{TEXT} €5"),
        (f"{TEXT} 1.5", f"{TEXT} 1,5"),
        (f"{TEXT} A7-x", f"{TEXT} A7-y"),
        (f"{TEXT} C#", f"{TEXT} C"),
        (f"{TEXT} a != b", f"{TEXT} a == b"),
        (f"Ann: {TEXT}", f"Bob: {TEXT}"),
        (f"# On keepers\n\n{TEXT}", TEXT),
        (f"{TEXT} not", TEXT),
        (f"{TEXT}\nnot", TEXT),
        (TEXT.rpartition(" ")[0], TEXT),
        ("give .5 mg of it", "give 5 mg of it"),
        ("a loss of (4,120) crowns", "a loss of 4,120 crowns"),
        ("at - 5 degrees", "at 5 degrees"),
        ("return w * h", "return w - h"),
        ("if a > b", "if a | b"),
        ('a pipe of 5"', "a pipe of 5'"),
        ("it costs 5.", "it costs 5"),
        ("he is guilty.", "he is guilty?"),
        ("No, officers may enter", "No officers may enter"),
        ("el año nuevo", "el ano nuevo"),
        ("vitamin Å", "vitamin A"),
        ("die Maße", "die Masse"),
        ("it draws 5 mW", "it draws 5 MW"),
        ("give 5 Mg of it", "give 5 mg of it"),
        ("take X away", "take x away"),
        ("they ship to US alone", "they ship to us alone"),
        ("x = a[i]", "x = a(i)"),
        ("10\t\t20", "10\t20"),
        ("[x] rent\n[ ] call", "[ ] rent\n[x] call"),
        (TEXT.replace("wordk", "wordkk"), TEXT),
        (TEXT.replace("said", "never said"), TEXT),
        (" ".join([TEXT] * 9), TEXT),
        (TEXT.upper(), TEXT),
        ("x = Foo", "x = foo"),
        ("if a:\n    b\nc", "if a:\n    b\n    c"),
        ("- rent\n  - call", "- rent\n- call"),
        ("a list:\n- one\n- two", "a list:\n- one - two"),
        ("10   20", "10      20"),
        ("\u03c4\u03b9 \u03b5\u03b9\u03bd\u03b1\u03b9;", "\u03c4\u03b9 \u03b5\u03b9\u03bd\u03b1\u03b9"),
        ("    b = 1", "b = 1"),
        ("no", "nothing"),
        ("…", "—"),
    ],
)
def test_what_differs_in_a_word_or_a_number_does_not(one: str, other: str) -> None:
    assert distinct(one, other) == distinct(other, one) == 2


@given(st.text("aB1. -\n\t\u030a", max_size=12))
def test_nothing_goes_but_blanks(text: str) -> None:
    once = canonical(text, "prose")
    assert once.split() == unicodedata.normalize("NFC", text).split()
    assert canonical(f"\n{once}  \n", "prose") == once
    assert canonical(text, "code").split() == once.split()


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("code", "a = 1 // b\nc = 2", "a = 1 // b c = 2"),
        ("code", "select a -- b\nfrom c", "select a -- b from c"),
        ("code", "x = 1 % of\ny = 2", "x = 1 % of y = 2"),
        ("table", "1 2\n3 4", "1 2 3\n4"),
        ("items", "a,b\nc,d", "a,b c,d"),
        ("table", "a\tb\t\t", "a\tb"),
    ],
)
def test_where_a_line_ends_counts_where_lines_are_no_layout(kind: str, one: str, other: str) -> None:
    assert distinct(one, other, kind=kind) == distinct(other, one, kind=kind) == 2
    assert distinct(one, one.replace("\n", "\r\n"), kind=kind) == 1
    document = [found(0, text=one, kind=kind), found(1, text=other, kind=kind)]
    assert len(beside(document[:1], document, Limits(1, 0, 1))) == 1


def test_two_quarters_are_two() -> None:
    rows = [f"| Q{quarter} | revenue | 4.{quarter} million | as planned |" * 8 for quarter in range(1, 5)]
    assert distinct(*rows) == 4


def test_the_better_ranked_of_two_is_kept() -> None:
    hits = [found(3, text=WRAPPED), found(1, text="else"), found(7, text=TEXT)]
    assert numbers(select(hits, Limits(3)).chosen) == [3, 1]


def test_each_text_is_compared_with_none_but_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a selection costs grows as its texts do: each is read once."""
    read = list[str]()

    def counted(text: str, kind: str) -> str:
        read.append(text)
        return canonical(text, kind)

    monkeypatch.setattr("app.answering.selection.canonical", counted)
    hits = [found(number, text=f"prose without numbers {'x' * number}") for number in range(500)]
    assert len(select(hits, Limits(500)).chosen) == len(read) == 500


def test_a_text_that_did_not_fit_stands_in_the_way_of_no_copy() -> None:
    hits = [found(0, 60), found(1, 45, WRAPPED), found(2, 40, TEXT)]
    selection = select(hits, Limits(None, 100))
    assert numbers(selection.chosen) == [0, 2]
    assert selection.notes == ()
    # Copies that do not fit either are one text that does not.
    copies = [found(number, 45, TEXT) for number in (1, 2, 3)]
    selection = select([found(0, 60), *copies, found(4, 20)], Limits(None, 100))
    assert numbers(selection.chosen) == [0, 4]
    assert selection.notes == ("1 of 3 chunks left out: the budget of 100 tokens was full",)


def test_a_neighbour_that_says_the_same_does_not_join() -> None:
    document = [found(0, text=TEXT), found(1, text="between"), found(2, text=WRAPPED)]
    assert [one.chunk.id for one, _ in beside([document[1]], document, Limits(1, 0, 1))] == [0]
    # Nor does it take room that it does not need.
    document = [found(0, text=TEXT), found(1, 50, WRAPPED), found(2)]
    assert [one.chunk.id for one, _ in beside([document[0]], document, Limits(1, 30, 2))] == [2]
