"""The fast scores against the paper's formulas, and what the formulas leave open."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragcache.profile import ProfileBuilder
from ragcache.scoring import ABSENT, Prefix, Reuse, context_impact, reuse_of
from ragcache.types import FloatArray, Profile
from tests import reference

CHUNKS = st.lists(st.sampled_from("abcde"), max_size=5)  # short alphabet: copies and overlaps are common


def causal_attention(rng: np.random.Generator, layers: int, heads: int, tokens: int) -> FloatArray:
    weights = np.tril(rng.exponential(size=(layers, heads, tokens, tokens)) ** 3 + 1e-6)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float32)


def fast_profile(attention: FloatArray, lengths: list[int]) -> Profile:
    builder = ProfileBuilder(lengths[:-1], lengths[-1], attention.shape[0])
    for layer in attention:
        builder.add(torch.from_numpy(layer[:, sum(lengths[:-1]) :]))
    return builder.build()


def profile_of(inter: list[list[float]], intra: list[float], lengths: tuple[int, ...]) -> Profile:
    row = np.asarray(intra, dtype=np.float32)
    return Profile(inter=np.asarray(inter, dtype=np.float32), intra=row, received=row, lengths=lengths)


@given(old=CHUNKS, new=CHUNKS, seed=st.integers(0, 2**32), alpha=st.floats(0, 3), data=st.data())
def test_fast_scores_equal_the_formulas(
    old: list[str], new: list[str], seed: int, alpha: float, data: st.DataObject
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=len(old) + 2, max_size=len(old) + 2))
    attention = causal_attention(np.random.default_rng(seed), layers=2, heads=2, tokens=sum(lengths))

    reuse = reuse_of(fast_profile(attention, lengths), old, Prefix(new))

    assert reuse.beta == pytest.approx(reference.beta(attention, lengths, old, new), abs=1e-5)
    assert reuse.gamma == pytest.approx(reference.gamma(old, new))
    assert reuse.cci == pytest.approx(reference.cci(attention, lengths), abs=1e-5)
    assert reuse.beta_adjusted == pytest.approx(reference.beta_adjusted(attention, lengths, old, new), abs=1e-5)
    assert reuse.cfo(alpha) == pytest.approx(reference.cfo(attention, lengths, old, new, alpha), abs=1e-4)


@given(old=CHUNKS, new=CHUNKS, seed=st.integers(0, 2**32))
def test_scores_stay_in_their_ranges_and_an_exact_context_needs_nothing(
    old: list[str], new: list[str], seed: int
) -> None:
    lengths = [2] * (len(old) + 2)
    attention = causal_attention(np.random.default_rng(seed), layers=1, heads=1, tokens=sum(lengths))
    reuse = reuse_of(fast_profile(attention, lengths), old, Prefix(new))
    assert 0 <= reuse.beta <= 1
    assert 0 <= reuse.gamma <= 1
    assert 0.5 <= reuse.cci <= 1
    assert 0 <= reuse.cfo() <= 1
    assert reuse.exact == (old == new)
    if reuse.exact:
        assert reuse.cfo() == 0


def test_a_worked_example() -> None:
    # Three context chunks that got 1, 2 and 5 of the attention; the new prefix holds the last two, turned round.
    profile = profile_of([[9, 9], [0.5, 0.5], [1, 1], [2, 3]], [0, 2], (7, 2, 4, 5))
    reuse = reuse_of(profile, ["a", "b", "c"], Prefix(["c", "x", "b"]))
    assert reuse.beta == pytest.approx(7 / 8)
    assert reuse.gamma == 1
    assert reuse.beta_adjusted == 0
    ratio = (1 / (2 * 2) + 2 / (2 * 4) + 5 / (2 * 5)) / (2 / 4)
    assert reuse.cci == pytest.approx(1 / (1 + np.exp(-ratio)))
    assert reuse.cfo(0.5) == pytest.approx(0.5 * reuse.cci)
    assert reuse.cfo(9) == 1
    assert not reuse.exact


def test_order_penalty_counts_discordant_pairs() -> None:
    profile = profile_of([[1]] * 5, [0], (1,) * 5)
    assert reuse_of(profile, list("abcd"), Prefix(list("abdc"))).gamma == pytest.approx(1 / 6)
    assert reuse_of(profile, list("abcd"), Prefix(list("dcba"))).gamma == 1
    assert reuse_of(profile, list("abcd"), Prefix(list("axbycd"))).gamma == 0


def test_the_system_row_counts_for_nothing() -> None:
    profile = profile_of([[1, 1], [2, 1], [1, 1]], [0, 1], (4, 2, 2))
    loud = dataclasses.replace(
        profile, inter=np.concatenate([profile.inter[:1] * 100, profile.inter[1:]]), lengths=(999, 2, 2)
    )
    assert reuse_of(profile, ["a", "b"], Prefix(["b"])) == reuse_of(loud, ["a", "b"], Prefix(["b"]))


@pytest.mark.parametrize(("prefix", "beta"), [([], 1.0), (["a"], 0.0)])
def test_no_old_context(prefix: list[str], beta: float) -> None:
    reuse = reuse_of(profile_of([[0.5, 0.5]], [0, 0.5], (3,)), [], Prefix(prefix))
    assert reuse == Reuse(beta=beta, gamma=0.0, cci=0.5, exact=not prefix, places=())


def test_a_context_without_attention_is_weighed_by_count() -> None:
    profile = profile_of([[1], [0], [0], [0]], [0], (1, 1, 1, 1))
    assert reuse_of(profile, ["a", "b", "c"], Prefix(["b"])).beta == pytest.approx(1 / 3)


@pytest.mark.parametrize(("inter", "cci"), [(0.0, 0.5), (0.1, 1.0)])
def test_impact_on_a_chunk_of_one_token(inter: float, cci: float) -> None:
    assert context_impact(profile_of([[1], [inter]], [0], (1, 1))) == cci


def test_an_overwhelming_context_does_not_overflow() -> None:
    assert context_impact(profile_of([[0, 0], [1, 1]], [0, 1e-30], (1, 1))) == 1.0


def test_copies_of_a_chunk_are_matched_one_to_one() -> None:
    assert Prefix(["b", "a"]).matches(["a", "b", "a"]) == (1, 0, ABSENT)
    assert Prefix(["a", "a"]).matches(["a"]) == (0,)
    profile = profile_of([[0], [3], [1]], [0], (1, 1, 1))
    assert reuse_of(profile, ["a", "a"], Prefix(["a"])).beta == pytest.approx(3 / 4)


def test_what_a_place_asks_does_not_grow_with_what_stands_before_it() -> None:
    class Counted(str):
        asked = 0

        def __hash__(self) -> int:
            Counted.asked += 1
            return super().__hash__()

    costs = []
    for count in (100, 200):
        prefix = Prefix(Counted(place) for place in range(count))
        Counted.asked = 0
        reuse_of(profile_of([[1]] * 3, [1], (1,) * 3), ["5", "7"], prefix)
        costs.append(Counted.asked)
    assert costs[0] == costs[1]


def test_the_order_of_a_long_context_takes_no_list_of_pairs() -> None:
    names = [str(place) for place in range(1000)]
    profile = profile_of([[1]] * 1001, [1], (1,) * 1001)
    tracemalloc.start()
    try:
        assert reuse_of(profile, names[::-1], Prefix(names)).gamma == 1
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_profile_of_another_context_is_refused() -> None:
    with pytest.raises(AssertionError):
        reuse_of(profile_of([[1]], [0], (1,)), ["a"], Prefix(["a"]))
