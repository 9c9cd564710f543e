from __future__ import annotations

from collections import Counter

import pytest
import torch

from ragcache.engine.torch.generation import Sampler
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
    ],
)
def test_values_out_of_range(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampling(**settings)  # type: ignore[arg-type]
