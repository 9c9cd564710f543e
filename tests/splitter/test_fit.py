from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitter.base import ChunkLimits, Offsets
from splitter.ruler import Ruler, border, fit
from tests.splitter.conftest import Words


def fitted(text: str, spans: list[Offsets], limits: ChunkLimits) -> list[str]:
    return [text[start:end] for start, end in fit(Ruler(text, Words()), spans, limits)]


@given(words=st.lists(st.sampled_from(["one", "two.", "three\n", "four!", "x\n\n"]), max_size=60), data=st.data())
def test_any_spans_come_within_the_limits(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=10))})
    pieces = fitted(text, list(pairwise(cuts)), ChunkLimits(5, 10))
    assert "".join("".join(pieces).split()) == "".join(text.split())
    counts = [Words().count(piece) for piece in pieces]
    assert all(count <= 10 for count in counts)
    assert len(counts) == 1 or all(count >= 5 for count in counts)


def test_what_fits_is_left_alone() -> None:
    text = "one two three four five six"
    assert fitted(text, [(0, 13), (13, len(text))], ChunkLimits(2, 8)) == ["one two three", "four five six"]


def test_a_small_piece_goes_to_its_neighbour() -> None:
    text = "one two three four five six"
    assert fitted(text, [(0, 18), (18, 23), (23, len(text))], ChunkLimits(2, 8)) == [text]


def test_a_neighbour_without_room_shares() -> None:
    text = " ".join("abcdefghij")
    assert [len(piece.split()) for piece in fitted(text, [(0, 15), (15, 19)], ChunkLimits(4, 8))] == [5, 5]


def test_a_long_span_is_cut_evenly_where_it_is_weakest() -> None:
    text = "a b c d e f g h. I j k l m n o p q r"
    assert fitted(text, [(0, len(text))], ChunkLimits(2, 16)) == ["a b c d e f g h.", "I j k l m n o p q r"]


@pytest.mark.parametrize("stop", ["।", '।"', "॥", "۔", "؟!", "።", "፧", "։", "။", "។"])
def test_sentences_of_other_scripts_are_borders(stop: str) -> None:
    for space in ("", " "):
        text = f"एक दो{stop}{space}तीन चार पाँच"
        assert border(text, 0, len(text)) == text.index("तीन") - (1 if '"' in stop and not space else 0)
    text = "५।५ २۔۳ चार"
    assert border(text, 0, len(text)) == text.index("चार")


def test_the_strongest_border_wins_and_the_last_of_equals() -> None:
    text = "One. Two.\nThree. Four. five\n\nsix. Seven"
    assert border(text, 0, len(text)) == text.index("six")
    assert border(text, 0, text.index("five")) == text.index("Three")
    assert border(text, 10, text.index("five") + 2) == text.index("five")
    assert border(text, 0, 2) == 2


@given(blank=st.integers(1, 400))
def test_blank_space_of_any_length_stands_between_pieces(blank: int) -> None:
    text = "a" + " \n" * blank + "b"
    assert "".join(fitted(text, [(0, len(text))], ChunkLimits(4, 8))).split() in (["ab"], ["a", "b"])
