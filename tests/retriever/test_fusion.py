from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.searcher import diversify, fuse
from tests.retriever.chunks import unit


def test_ranks_are_added() -> None:
    assert fuse([[7, 5], [5, 9]]) == {5: 1 / 62 + 1 / 61, 7: 1 / 61, 9: 1 / 62}
    assert list(fuse([[7, 5], [5, 9]])) == [5, 7, 9]


def test_weights_count() -> None:
    assert list(fuse([[1, 2], [2, 1]], [2.0, 0.5])) == [1, 2]
    assert list(fuse([[1, 2], [2, 1]], [0.5, 2.0])) == [2, 1]


def test_equals_are_ordered_by_id() -> None:
    assert list(fuse([[9, 3], [3, 9]])) == [3, 9]
    assert fuse([]) == fuse([[], []]) == {}


def slow_mmr(relevance: list[float], vectors: np.ndarray, k: int, share: float) -> list[int]:
    chosen: list[int] = []
    while len(chosen) < min(k, len(relevance)):
        gains = {
            place: share * relevance[place]
            - (1 - share) * max((float(vectors[place] @ vectors[one]) for one in chosen), default=0.0)
            for place in range(len(relevance))
            if place not in chosen
        }
        chosen.append(max(gains, key=lambda place: (gains[place], -place)))
    return chosen


@given(st.integers(0, 12), st.integers(1, 15), st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.integers(0, 5))
def test_diversify_equals_the_slow_one(count: int, k: int, share: float, seed: int) -> None:
    vectors = unit(count, seed, dimension=4)
    relevance = np.random.default_rng(seed).random(count).tolist()
    assert diversify(relevance, vectors, k, share).tolist() == slow_mmr(relevance, vectors, k, share)


def test_a_copy_of_the_first_comes_last() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    assert diversify([1.0, 0.99, 0.2], vectors, 3, 0.5).tolist() == [0, 2, 1]
    assert diversify([1.0, 0.99, 0.2], vectors, 3, 1.0).tolist() == pytest.approx([0, 1, 2])
