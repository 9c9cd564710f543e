"""Where the parts of a text stand that somebody else has cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from splitter.placing import _dense, places

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
    found = places(text, [(text[slice(*span)], None) for span in spans])
    if any(one >= after for ways in (starts, ends) for one, after in pairwise(ways)):
        return  # a part inside of another one, but for blank space
    assert found is not None
    assert [_dense(text[slice(*one)]) for one in found] == [_dense(text[slice(*span)]) for span in dense]
    held = {place for start, end in found for place in range(start, end)}
    assert all(place in held for place, character in enumerate(text) if not character.isspace())
    assert all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(found))


@given(TEXTS, st.lists(st.tuples(st.text("ab ", max_size=6), st.none() | st.integers(-3, 50)), max_size=8))
def test_whatever_is_found_is_there(text: str, parts: list[tuple[str, int | None]]) -> None:
    found = places(text, parts)
    if found is None:
        return
    kept = [part for part, _ in parts if part.strip()]
    assert [_dense(text[slice(*one)]) for one in found] == [_dense(part) for part in kept]
    assert all(after[0] <= before[1] or not text[before[1] : after[0]].strip() for before, after in pairwise(found))


def test_offsets_that_hold_are_taken() -> None:
    """The text alone would let them share less."""
    assert places("w w w w w", [("w w w", 0), ("w w w", 2), ("w w", 6)]) == [(0, 5), (2, 7), (6, 9)]


def test_offsets_that_leave_a_gap_are_not() -> None:
    """As llama-index finds them: each behind the start of the one before it."""
    text = "w w w w w w end"
    assert places(text, [("w w", 0), ("w w", 2), ("w w", 4), ("end", 12)]) == [(0, 3), (4, 7), (8, 11), (12, 15)]


def test_a_long_text_that_repeats_itself_takes_no_longer() -> None:
    text = "w " * 100_000
    shared = [(text[start : start + 200], None) for start in range(0, 199_900, 160)]
    assert places(text, shared) is not None
    assert places(text + "end", [*shared, ("fin", None)]) is None
