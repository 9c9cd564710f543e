from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import splitter.ruler
from splitter.ruler import Ruler
from tests.splitter.conftest import Words


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
