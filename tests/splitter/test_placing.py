"""Where the parts of a text stand that somebody else has cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitter.base import Offsets
from splitter.placing import Layout, Misplaced, _dense, places

# Few letters, so that texts repeat themselves.
TEXTS = st.text("ab \n", max_size=40)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """A text and spans that hold all of it, some of which share characters."""
    text = draw(TEXTS)
    spans = [(0, 0)]
    while spans[-1][1] < len(text):
        start = draw(st.integers(spans[-1][0], spans[-1][1]))
        spans.append((start, draw(st.integers(spans[-1][1] + 1, min(len(text), spans[-1][1] + 8)))))
    return text, spans[1:]


@given(cut_texts())
def test_parts_of_a_text_are_found(cut: tuple[str, list[tuple[int, int]]]) -> None:
    text, spans = cut
    dense = [span for span in spans if text[slice(*span)].strip()]
    starts, ends = ([len(_dense(text[: span[side]])) for span in dense] for side in (0, 1))
    if any(one >= after for ways in (starts, ends) for one, after in pairwise(ways)):
        return  # a part inside of another one, but for blank space
    found = places(text, [(text[slice(*span)], None) for span in spans])
    assert [_dense(text[slice(*one)]) for one in found] == [_dense(text[slice(*span)]) for span in dense]
    held = {place for start, end in found for place in range(start, end)}
    assert all(place in held for place, character in enumerate(text) if not character.isspace())
    assert all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(found))


@given(TEXTS, st.lists(st.tuples(st.text("ab ", max_size=6), st.none() | st.integers(-3, 50)), max_size=8))
def test_whatever_is_found_is_there(text: str, parts: list[tuple[str, int | None]]) -> None:
    try:
        found = places(text, parts)
    except Misplaced:
        return
    check(text, [part for part, _ in parts], found)


def check(text: str, parts: list[str], found: list[Offsets]) -> None:
    """That they hold the text, and that each part but those within the one before it has its span."""
    spans, last = iter(found), ""
    for part in filter(str.strip, parts):
        if last and _dense(part) in last and len(found) < sum(map(bool, map(str.strip, parts))):
            continue  # it may have been left out
        last = _dense(text[slice(*next(spans))])
        assert last == _dense(part) or _dense(part) in last
    held = {place for start, end in found for place in range(start, end)}
    assert all(place in held for place, character in enumerate(text) if not character.isspace())
    assert all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(found))


def test_offsets_that_hold_are_taken() -> None:
    """The text alone would let them share less."""
    assert places("w w w w w", [("w w w", 0), ("w w w", 2), ("w w", 6)]) == [(0, 5), (2, 7), (6, 9)]


def test_offsets_that_leave_a_gap_are_not() -> None:
    """As llama-index finds them: each behind the start of the one before it."""
    text = "w w w w w w end"
    assert places(text, [("w w", 0), ("w w", 2), ("w w", 4), ("end", 12)]) == [(0, 3), (4, 7), (8, 11), (12, 15)]


@pytest.mark.parametrize("step", [20, 30])
@pytest.mark.parametrize("told", [False, True])
def test_windows_of_one_stride_end_within_one_another(step: int, told: bool) -> None:
    """The last of them lie in the one before, which has reached the end of the text."""
    text = " ".join(f"word{number}" for number in range(30))
    starts = range(0, len(text), step)
    found = places(text, [(text[start : start + 70], start if told else None) for start in starts])
    assert len(found) < len(starts)
    assert found[-1][1] == len(text)


def test_a_part_within_the_one_before_it_is_left_out() -> None:
    text = "one two three four"
    assert places(text, [(text, 0), ("three four", 8)]) == [(0, 18)]
    assert places(text, [(text, None), ("three four", None), ("one two", None), (text, None)]) == [(0, 18)]
    assert places(text, [("one two three", None), ("three", None), ("four", None)]) == [(0, 13), (14, 18)]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (["one two", "THREE four"], "changes this text in its node 2, 'THREE four'"),
        (["one", "three four"], "leaves some of this text out before its node 2, 'three four'"),
        (["one two three"], "leaves the end of this text out"),
        (["three four", "one two"], "leaves some of this text out before its node 1"),
        (["one two", "four", "three"], "leaves some of this text out before its node 2"),
        (["one two three", "four", "two"], "turns the order of this text round at its node 3, 'two'"),
        (["one", "one two three four"], "makes nodes of this text that do not stand one behind the other"),
        ([], "makes no nodes of this text"),
    ],
)
def test_why_parts_have_no_places_is_told(parts: list[str], told: str) -> None:
    with pytest.raises(Misplaced, match=f"^{told}"):
        places("one two three four", [(part, None) for part in parts])


def windows(text: str, size: int, step: int) -> list[str]:
    return [_dense(text[start : start + size]) for start in range(0, len(text) - size + step, step)]


LINES = "the same line of text. " * 2000
REPEATED = {"one letter": ("a" * 1_000_000, 400_000, 280_000), "long parts": ("a" * 400_000, 5000, 3750),
            "words": ("w " * 100_000, 200, 160), "lines": (LINES, 300, 200),
            "blocks": (("ab " * 400 + "x ") * 200, 700, 500)}  # fmt: skip


@pytest.mark.parametrize("name", REPEATED)
def test_a_text_that_repeats_itself_takes_no_longer(name: str) -> None:
    """Each part is looked for a few times, and a time costs what the part and what it shares has characters."""
    text, size, step = REPEATED[name]
    parts = windows(text, size, step)
    dense = _dense(text)
    layout = Layout(dense, parts)
    found = layout.spans()
    assert found is not None
    assert [dense[start:end] for start, end in found] == parts
    assert layout.spent <= 4 * sum(len(part) + 256 for part in parts)


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("wrong", [-1, -2, 2])
def test_parts_that_have_no_places_end_as_soon(name: str, nested: bool, wrong: int) -> None:
    """A dead end at the bound is one too: what is compared stays within it, but for one time."""
    text, size, step = REPEATED[name]
    parts = windows(text, size, step)
    parts[wrong] = "x" + parts[wrong][1:]
    layout = Layout(_dense(text), parts, nested)
    assert layout.spans() is None
    assert layout.spent <= layout.allowed + 256 + 3 * size
    with pytest.raises(Misplaced, match="changes this text in its node"):
        places(text, [(part, None) for part in parts])


def test_a_text_that_repeats_itself_too_much_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitter.placing.LEAST", 0)
    monkeypatch.setattr("splitter.placing.TRIES", 1)
    with pytest.raises(Misplaced, match=r"^cuts a text that repeats itself so much that nobody can tell where its no"):
        places(LINES, [(part, None) for part in windows(LINES, 300, 200)])
