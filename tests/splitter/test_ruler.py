from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splitter.ruler
from splitter import make_splitter
from splitter.base import ChunkLimits, FastTokens, Offsets, Tokens
from splitter.ruler import Ruler, at_a_character
from splitter.units import sentence_spans
from tests.splitter.conftest import Words

WHOLE = {  # each is one character to whoever reads it, of several to Unicode
    "Thai": ("ที่", "นี่", "มี", "น้ำ", "ดื่", "ม"),
    "Devanagari": ("हि", "न्दी", "में", "क्ष", "मा"),
    "Khmer": ("ខ្មែ", "រ", "ស្រុ", "ក"),
    "Myanmar": ("မ", "န္တ", "လေး"),
    "Javanese": ("ꦲ", "ꦏ꧀ꦱ", "ꦫ"),
    "a family": ("\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",),
    "a heart and a sign": ("\u2764\ufe0f", "\u26a0\ufe0f"),
    "tones of skin": ("\U0001f44d\U0001f3fd", "\U0001f44b\U0001f3ff"),
    "flags": ("\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"),
    "a flag of tags": ("\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",),
    "keys": ("1\ufe0f\u20e3", "2\ufe0f\u20e3"),
    "accents": ("e\u0301", "a\u0308\u0323", "x"),
    "Hangul in parts": ("\u1112\u1161\u11ab", "\u1100\u1173\u11af"),
    "kana": ("\uff76\uff9e", "\uff8a\uff9f"),
}


class Characters:
    """A model whose tokens are those of Unicode."""

    def count(self, text: str) -> int:
        return len(text)

    def offsets(self, text: str) -> Sequence[Offsets]:
        return [(place, place + 1) for place in range(len(text))]


def test_a_long_text_is_measured_as_if_in_one_piece() -> None:
    text = "word, other words! " * 10_000
    assert len(text) > 3 * splitter.ruler.BLOCK
    ruler = Ruler(text, Words())
    assert ruler.starts.tolist() == [start for start, _ in Words().offsets(text)]


@given(text=st.text(alphabet="ab .", max_size=100), start=st.integers(0, 100), end=st.integers(0, 100))
def test_tokens_are_found_from_either_side(text: str, start: int, end: int) -> None:
    start, end = sorted((min(start, len(text)), min(end, len(text))))
    ruler = Ruler(text, Words())
    inside = [first for first, _ in Words().offsets(text) if start <= first < end]
    assert ruler.between(start, end) == len(inside)
    assert np.diff(ruler.rank(np.array([start, end]))).tolist() == [len(inside)]
    if inside:
        assert ruler.after(start, len(inside) - 1) == inside[-1]
        assert ruler.before(end, len(inside)) == inside[0]
    assert ruler.after(start, 1000) == len(text)
    assert ruler.before(end, 1000) == 0


def test_text_without_words_is_cut_anywhere() -> None:
    text = "x" * (2 * splitter.ruler.BLOCK + 5)
    assert Ruler(text, Words()).starts.tolist() == [0, splitter.ruler.BLOCK, 2 * splitter.ruler.BLOCK]


@pytest.mark.parametrize("name", ["fixed", "structure"])
@pytest.mark.parametrize("parts", WHOLE.values(), ids=WHOLE)
def test_no_piece_begins_amid_a_character(parts: tuple[str, ...], name: str, smollm2_tokens: FastTokens) -> None:
    text, starts = "", {0}
    for number in range(200):
        text += parts[number % len(parts)]
        starts.add(len(text))
    for limits in (ChunkLimits(3, longest) for longest in (23, 26, 31)):
        models: list[tuple[Tokens, ChunkLimits]] = [
            (Characters(), limits),
            (smollm2_tokens, ChunkLimits(3, 4 * limits.max_tokens)),
        ]
        for tokens, of_model in models:
            pieces = make_splitter(name, tokens, None, of_model).split(text)
            assert len(pieces) > 3
            assert {piece.start for piece in pieces} <= starts


def test_a_cut_goes_back_a_little_and_never_to_the_start() -> None:
    marks = splitter.ruler.LONGEST_CHARACTER - 1
    assert at_a_character("ab" + "\u0301" * marks, 0, marks + 1) == 1
    assert at_a_character("ab" + "\u0301" * 40, 0, 30) == 30
    assert at_a_character("b" + "\u0301" * 9, 0, 5) == 5
    assert at_a_character("a \u0301b", 0, 2) == 2, "nothing stands before that mark"
    assert at_a_character("ab", 0, 2) == 2


def test_a_sentence_without_spaces_is_read_in_parts_of_whole_characters() -> None:
    parts = "x" + "ที่" * 3000
    assert all(parts[start] == "ท" for start, _ in list(sentence_spans(parts, 0, len(parts)))[1:])
