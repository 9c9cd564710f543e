"""Linkers that choose by a score: cci, cacheblend, query, random, h2o."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ragcache.errors import ConfigError
from ragcache.linking.base import LinkedPrompt, PlacedChunk
from ragcache.linking.baselines import HeavyHitters, Random
from ragcache.linking.cacheblend import CacheBlend
from ragcache.linking.cci import ContextImpact
from ragcache.linking.query import FLOOR, Query, score

MakeChunk = Callable[..., PlacedChunk]
MakePrompt = Callable[..., LinkedPrompt]


def test_cci_counts_a_system_segment_that_is_gone(chunk: MakeChunk, prompt: MakePrompt) -> None:
    rows = [[0.0] * 4, [0.1, 0.4, 0.3, 0.2]]
    kept = chunk(0, 5, 4, inter=rows, beta=1.0, cci=0.5)
    assert ContextImpact().select(prompt([kept], question=9)).tolist() == []
    assert ContextImpact().select(prompt([replace(kept, system_gone=True)], question=9)).tolist() == [6, 7]


def test_cci_takes_the_most_contextualised_tokens_as_many_as_cfo_says(chunk: MakeChunk, prompt: MakePrompt) -> None:
    rows = [[9, 9, 9, 0], [0.1, 0.0, 0.2, 0.4], [0.1, 0.3, 0.2, 0.0]]  # sums .2 .3 .4 .4 without the System
    linked = prompt([chunk(0, 5, 4, inter=rows, beta=0.25, cci=0.6)], question=9)  # CFO .45: 2 of 4
    assert ContextImpact().select(linked).tolist() == [7, 8]
    assert ContextImpact(alpha=1.2).select(linked).tolist() == [6, 7, 8]  # CFO .54: 3 of 4
    assert ContextImpact(alpha=0).select(linked).tolist() == []
    assert ContextImpact(ratio=0.25).select(linked).tolist() == [7]


def test_cci_without_context_chunks_ranks_by_the_system(chunk: MakeChunk, prompt: MakePrompt) -> None:
    linked = prompt([chunk(0, 5, 4, inter=[[0.1, 0.4, 0.2, 0.3]])], question=9)
    assert ContextImpact(ratio=0.5).select(linked).tolist() == [6, 8]


def test_cci_focused_keeps_a_share_of_what_all_chunks_ask_for_where_the_question_reads(
    chunk: MakeChunk, prompt: MakePrompt
) -> None:
    rows = [[0.0] * 4, [0.1, 0.2, 0.3, 0.4]]
    chunks = [chunk(0, 1, 4, inter=rows), chunk(1, 5, 2, exact=True), chunk(2, 7, 4, inter=rows)]
    linked = prompt(chunks, question=11, attention=[99, 1, 1, 1, 1, 99, 99, 8, 1, 1, 2])
    # With the floor .11 .21 .31 .41 of each chunk; times what is read .88 .21 .31 .82 of the last.
    assert ContextImpact(ratio=0.5).select(linked).tolist() == [3, 4, 9, 10]
    assert ContextImpact(ratio=0.5, focused=0.5).select(linked).tolist() == [7, 10]
    assert ContextImpact(ratio=0.5, focused=0.6).select(linked).tolist() == [4, 7, 10]
    assert ContextImpact(ratio=0.5, focused=0.0).select(linked).tolist() == []


def test_cci_focuses_on_chunks_or_on_tokens() -> None:
    with pytest.raises(ConfigError, match=r"focus=3 and focused=0.5: give one"):
        ContextImpact(focus=3, focused=0.5)
    with pytest.raises(ConfigError, match=r"focused=1.5 is out of range"):
        ContextImpact(focused=1.5)
    assert ContextImpact(focused=0.5).probes and not ContextImpact().probes


def test_cacheblend_spends_one_budget_over_the_prompt(chunk: MakeChunk, prompt: MakePrompt) -> None:
    chunks = [chunk(0, 1, 4), chunk(1, 5, 2, exact=True), chunk(2, 7, 4)]
    deviations = {2: [99, 1, 2, 3, 4, 99, 99, 5, 8, 7, 6], 3: [99, 8, 7, 6, 5, 99, 99, 1, 2, 3, 4]}
    linked = prompt(chunks, question=11, deviations=deviations)
    assert CacheBlend(ratio=0.5).select(linked).tolist() == [7, 8, 9, 10]
    assert CacheBlend(ratio=0.5, full_layers=3).select(linked).tolist() == [1, 2, 3, 4]


def test_cacheblend_needs_a_layer_that_can_deviate() -> None:
    with pytest.raises(ConfigError, match=r"full_layers=1 sees no deviation.*at least 2"):
        CacheBlend(full_layers=1)
    with pytest.raises(ConfigError, match=r"full_layers=0 is out of range"):
        CacheBlend(full_layers=0)


def test_query_repairs_heads_and_the_best_of_the_rest(chunk: MakeChunk, prompt: MakePrompt) -> None:
    gone, kept = [[0.0] * 4, [0.5, 0.5, 0.5, 0.1]], [[0.0] * 4, [0.5] * 4]
    chunks = [chunk(0, 1, 4, inter=gone), chunk(1, 5, 4, inter=kept, places=(0,))]
    attention = [9, 9, 1, 2, 9, 9, 9, 9, 9]
    linked = prompt(chunks, question=9, attention=attention)
    # Beyond the heads: .51, 1.02, .99 in the first chunk, .09 each in the one that kept its context.
    assert Query(first=1, ratio=0.25).select(linked).tolist() == [1, 3, 4, 5]
    assert Query(first=0, ratio=0.125).select(linked).tolist() == [1]
    assert Query(first=9, ratio=0.25).select(linked).tolist() == list(range(1, 9))


def test_query_score_reads_only_the_context_that_is_gone(chunk: MakeChunk) -> None:
    placed = chunk(1, 2, 2, inter=[[5, 5], [0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], places=(-1, 0, -1))
    np.testing.assert_allclose(placed.lost_attention(), [0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(chunk(0, 0, 2, inter=[[0.7, 0.9]]).lost_attention(), [0.7, 0.9], rtol=1e-6)
    question = np.asarray([1, 1, 1, 2, 1], dtype=np.float32)
    np.testing.assert_allclose(score(question, [placed]), [0, 0, 0.6 + FLOOR, 2 * (0.8 + FLOOR), 0], rtol=1e-6)


def test_random_is_a_lot_of_its_seed(chunk: MakeChunk, prompt: MakePrompt) -> None:
    linked = prompt([chunk(0, 3, 40), chunk(1, 43, 40)], question=83)
    lots = {tuple(Random(ratio=0.25, seed=seed).select(linked)) for seed in range(5)}
    assert len(lots) == 5
    for lot in lots:
        assert sum(position < 43 for position in lot) == sum(position >= 43 for position in lot) == 10
    alone = Random(ratio=0.25).select(prompt([chunk(1, 43, 40)], question=83))
    assert set(alone) < set(Random(ratio=0.25).select(linked))


def test_h2o_takes_the_most_attended_tokens_of_each_chunk(chunk: MakeChunk, prompt: MakePrompt) -> None:
    chunks = [chunk(0, 2, 3, received=[0.1, 0.3, 0.2]), chunk(1, 5, 3, received=[9, 8, 7])]
    assert HeavyHitters(ratio=1 / 3).select(prompt(chunks, question=8)).tolist() == [3, 5]


@pytest.mark.parametrize("linker", [ContextImpact, CacheBlend, Query, Random, HeavyHitters])
@pytest.mark.parametrize("ratio", [-0.1, 1.01, float("nan")])
def test_ratios_out_of_range_are_refused(
    linker: type[ContextImpact | CacheBlend | Query | Random | HeavyHitters], ratio: float
) -> None:
    with pytest.raises(ConfigError, match=f"ratio={ratio} is out of range: choose from 0 to 1"):
        linker(ratio=ratio)


@pytest.mark.parametrize("alpha", [-1.0, float("inf"), float("nan")])
def test_alpha_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match=f"alpha={alpha} is out of range"):
        ContextImpact(alpha=alpha)
