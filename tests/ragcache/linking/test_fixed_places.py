"""Linkers that choose by place alone: full, naive, first_tokens, boundary."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ragcache.errors import ConfigError
from ragcache.linking.base import LinkedPrompt, PlacedChunk
from ragcache.linking.baselines import Full, Naive
from ragcache.linking.boundary import Boundary, FirstTokens

MakeChunk = Callable[..., PlacedChunk]
MakePrompt = Callable[..., LinkedPrompt]


def test_full_takes_all_that_is_not_exact_and_naive_nothing(chunk: MakeChunk, prompt: MakePrompt) -> None:
    linked = prompt([chunk(0, 2, 3, exact=True), chunk(1, 5, 2), chunk(2, 8, 2)], question=10)
    assert Full().select(linked).tolist() == [5, 6, 8, 9]
    assert Full.recompute_all
    assert Naive().select(linked).tolist() == []
    assert not Naive.recompute_all


def test_first_tokens_spare_the_first_chunk_of_the_prompt(chunk: MakeChunk, prompt: MakePrompt) -> None:
    linked = prompt([chunk(0, 2, 5), chunk(1, 7, 5, exact=True), chunk(2, 12, 5), chunk(3, 17, 2)], question=19)
    assert FirstTokens(k=3).select(linked).tolist() == [12, 13, 14, 17, 18]
    assert FirstTokens(k=0).select(linked).tolist() == []


def test_first_tokens_of_the_first_cached_chunk_behind_a_computed_one(chunk: MakeChunk, prompt: MakePrompt) -> None:
    assert FirstTokens(k=2).select(prompt([chunk(1, 9, 5)], question=14)).tolist() == [9, 10]


def test_boundary_repairs_both_sides_of_each_boundary(chunk: MakeChunk, prompt: MakePrompt) -> None:
    linked = prompt([chunk(0, 2, 6), chunk(1, 8, 6), chunk(2, 14, 6)], question=20)
    assert Boundary(k=4).select(linked).tolist() == [6, 7, 8, 9, 12, 13, 14, 15]
    assert Boundary(k=3).select(linked).tolist() == [7, 8, 9, 13, 14, 15]
    assert Boundary(k=99).select(linked).tolist() == list(range(2, 20))


def test_boundary_with_a_side_that_is_exact_or_not_cached(chunk: MakeChunk, prompt: MakePrompt) -> None:
    exact = prompt([chunk(0, 2, 6, exact=True), chunk(1, 8, 6)], question=14)
    assert Boundary(k=4).select(exact).tolist() == [8, 9]
    followed_by_a_computed_one = prompt([chunk(0, 2, 6)], question=14)
    assert Boundary(k=4).select(followed_by_a_computed_one).tolist() == [6, 7]


@pytest.mark.parametrize("linker", [FirstTokens, Boundary])
def test_negative_counts_are_refused(linker: type[FirstTokens | Boundary]) -> None:
    with pytest.raises(ConfigError, match=r"k=-1 is out of range: choose at least 0"):
        linker(k=-1)
