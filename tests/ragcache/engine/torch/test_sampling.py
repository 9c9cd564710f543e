from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragcache.engine.torch.sampler import Sampler, _keep, token_logprobs
from ragcache.errors import ConfigError
from ragcache.sampling import Sampling

LOGITS = torch.tensor([0.5, 0.3, 0.15, 0.05])[torch.tensor([2, 0, 3, 1])].log()  # probabilities .15 .5 .05 .3
BEST = 1


def drawn(sampling: Sampling, count: int = 3000) -> Counter[int]:
    sampler = Sampler(sampling)
    return Counter(sampler.choose(LOGITS) for _ in range(count))


def test_greedy_takes_the_best() -> None:
    assert drawn(Sampling(), 20) == {BEST: 20}


@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_the_best_of_one_is_greedy(temperature: float) -> None:
    assert drawn(Sampling(temperature, top_k=1), 50) == {BEST: 50}


def test_a_very_low_temperature_is_greedy() -> None:
    assert drawn(Sampling(1e-60), 50) == {BEST: 50}


def test_a_share_smaller_than_the_best_is_greedy() -> None:
    assert drawn(Sampling(1.0, top_p=0.4), 50) == {BEST: 50}


@pytest.mark.parametrize(
    ("top_p", "expected"), [(0.5, {1}), (0.51, {1, 3}), (0.8, {1, 3}), (0.9, {0, 1, 3}), (0.96, {0, 1, 2, 3})]
)
def test_the_smallest_set_that_reaches_the_share_is_kept(top_p: float, expected: set[int]) -> None:
    assert set(drawn(Sampling(1.0, top_p=top_p, seed=0))) == expected


def test_the_best_few_are_kept() -> None:
    assert set(drawn(Sampling(1.0, top_k=2, seed=0))) == {1, 3}
    assert set(drawn(Sampling(1.0, top_k=100, seed=0))) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("min_p", "expected"), [(0.05, {0, 1, 2, 3}), (0.2, {0, 1, 3}), (0.35, {1, 3}), (0.7, {1}), (1.0, {1})]
)
def test_a_share_of_the_best_is_the_least(min_p: float, expected: set[int]) -> None:
    assert set(drawn(Sampling(1.0, min_p=min_p, seed=0))) == expected


def test_the_share_of_top_p_is_of_what_min_p_leaves() -> None:
    """.5, .3 and .15 are 53, 32 and 16 in a hundred of themselves."""
    assert set(drawn(Sampling(1.0, top_p=0.84, seed=0))) == {0, 1, 3}
    assert set(drawn(Sampling(1.0, top_p=0.84, min_p=0.2, seed=0))) == {1, 3}


def test_the_share_of_top_p_is_of_what_top_k_leaves() -> None:
    """.5 and .3 are 62 and 38 in a hundred of themselves."""
    assert set(drawn(Sampling(1.0, top_p=0.6, seed=0))) == {1, 3}
    assert set(drawn(Sampling(1.0, top_p=0.6, top_k=2, seed=0))) == {1}


def plainly_kept(probabilities: torch.Tensor, sampling: Sampling) -> set[int]:
    """By sorting them all, one step after the other."""
    left = sorted(((value, token) for token, value in enumerate(probabilities.tolist())), reverse=True)
    left = [one for one in left if one[0] >= sampling.min_p * left[0][0]][: sampling.top_k or None]
    total, before, found = sum(value for value, _ in left), 0.0, set()
    for value, token in left:
        if before >= sampling.top_p * total and sampling.top_p < 1:
            break
        found.add(token)
        before += value
    return found


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("top_k", [0, 1, 7, 3000, 100_000])
@pytest.mark.parametrize("top_p", [1e-9, 0.37, 0.9, 0.9999, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.3])
def test_of_a_large_vocabulary_the_same_is_kept(spread: float, top_k: int, top_p: float, min_p: float) -> None:
    """More than are looked at first, or fewer."""
    drawn_logits = torch.randn(5000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    probabilities, sampling = torch.softmax(spread * drawn_logits, -1), Sampling(1.0, top_p, top_k, min_p=min_p)
    found = _keep(probabilities, sampling)
    assert set(found.nonzero()[:, 0].tolist()) == plainly_kept(probabilities, sampling)
    assert torch.equal(found[found > 0], probabilities[found > 0])


def test_what_is_kept_is_drawn_by_its_probability() -> None:
    found = drawn(Sampling(1.0, seed=1))
    expected = LOGITS.exp()
    assert all(abs(found[token] / 3000 - float(expected[token])) < 0.03 for token in range(4)), found
    flat = drawn(Sampling(50.0, seed=1))
    assert all(abs(flat[token] / 3000 - 0.25) < 0.03 for token in range(4)), flat


def test_a_seed_makes_it_the_same_again() -> None:
    def sequence(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(1.0, seed=seed))
        return [sampler.choose(LOGITS) for _ in range(60)]

    assert sequence(7) == sequence(7) != sequence(8)
    assert sequence(None) != sequence(None)


def test_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    drawn(Sampling(1.0, seed=3), 5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_p": float("nan")}, "top_p is nan"),
        ({"top_k": -1}, "top_k is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
        ({"min_p": -0.1}, "min_p is -0.1: use 0"),
        ({"min_p": 1.01}, "min_p is 1.01"),
        ({"frequency_penalty": 2.1}, "frequency_penalty is 2.1: use a number from -2 to 2"),
        ({"presence_penalty": -2.1}, "presence_penalty is -2.1"),
        ({"presence_penalty": float("nan")}, "presence_penalty is nan"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0: use 1"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty is inf"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty is nan"),
        ({"logprobs": 21}, "logprobs is 21: use None"),
        ({"logprobs": -1}, "logprobs is -1"),
        ({"logprobs": True}, "logprobs is True"),
        ({"logit_bias": {3: 100.1}}, "logit_bias of token 3 is 100.1: use a number from -100 to 100"),
        ({"logit_bias": {3: float("nan")}}, "logit_bias of token 3 is nan"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias names token -1"),
        ({"logit_bias": {"3": 1.0}}, "logit_bias names token '3': use ids"),
        ({"logit_bias": {True: 1.0}}, "logit_bias names token True"),
    ],
)
def test_values_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampling(**settings)


def test_a_bias_is_kept_as_pairs_in_their_order() -> None:
    made = Sampling(logit_bias={7: -1.0, 3: 2.0})
    assert made.logit_bias == ((3, 2.0), (7, -1.0))
    assert {made: "hashed"}[Sampling(logit_bias=((7, -1.0), (3, 2.0)))] == "hashed"
    assert replace(made, seed=3).logit_bias == made.logit_bias


def reference(logits: Sequence[float], sampling: Sampling, prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
    """Token by token, as it is defined."""
    changed, bias = list(logits), dict(sampling.logit_bias)
    for token in range(len(changed)):
        changed[token] += bias.get(token, 0.0)
        if token in prompt or token in answer:
            is_above = changed[token] > 0
            changed[token] *= 1 / sampling.repetition_penalty if is_above else sampling.repetition_penalty
        changed[token] -= sampling.frequency_penalty * answer.count(token)
        changed[token] -= sampling.presence_penalty * (token in answer)
    return changed


@given(
    st.integers(0, 1000),
    st.builds(
        Sampling,
        frequency_penalty=st.floats(-2, 2),
        presence_penalty=st.floats(-2, 2),
        repetition_penalty=st.floats(0.5, 2),
        logit_bias=st.dictionaries(st.integers(0, 7), st.floats(-100, 100)),
    ),
    st.lists(st.integers(0, 7)),
)
def test_the_greedy_answer_follows_what_is_left(seed: int, sampling: Sampling, prompt: list[int]) -> None:
    sampler, answer = Sampler(sampling, prompt), list[int]()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(12):
        logits = torch.randn(8, generator=generator)
        before = logits.clone()
        token = sampler.choose(logits)
        left = reference(logits.tolist(), sampling, prompt, answer)
        assert left[token] == pytest.approx(max(left), abs=1e-4)
        assert torch.equal(logits, before)
        answer.append(token)


def test_a_drawn_answer_follows_it_too() -> None:
    sampler = Sampler(Sampling(1.0, seed=0, logit_bias={2: 100.0}))
    assert {sampler.choose(LOGITS) for _ in range(50)} == {2}
    spread = Sampler(Sampling(1.0, seed=0, frequency_penalty=2.0))
    counts = Counter(spread.choose(LOGITS) for _ in range(400))
    assert max(counts.values()) - min(counts.values()) < 10, "what came often comes less"


def test_logprobs_are_of_the_model_alone() -> None:
    told = token_logprobs(LOGITS + 3, 2, 3)
    assert (told.token, [token for token, _ in told.top]) == (2, [1, 3, 0])
    assert [told.logprob, *(logprob for _, logprob in told.top)] == pytest.approx(
        [math.log(share) for share in (0.05, 0.5, 0.3, 0.15)], abs=1e-6
    )
    assert token_logprobs(LOGITS, 1, 0).top == ()
    assert len(token_logprobs(LOGITS, 1, 20).top) == 4
