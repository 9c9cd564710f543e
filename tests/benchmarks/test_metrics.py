from __future__ import annotations

import numpy as np
import pytest
import torch

from app.answering.likeness import rouge_l, token_f1
from benchmarks.quality.metrics import divergence, estimate, paired_ratio


def test_divergence_is_kl_of_the_full_distribution_from_the_linked() -> None:
    full = torch.tensor([[0.6, 0.4, 1e-9], [0.9, 0.05, 0.05]]).log()
    linked = torch.tensor([[0.75, 0.25, 1e-9], [0.1, 0.8, 0.1]]).log()
    found = divergence(full, linked)
    first = 0.6 * np.log(0.6 / 0.75) + 0.4 * np.log(0.4 / 0.25)
    second = 0.9 * np.log(9) + 0.05 * np.log(0.05 / 0.8) + 0.05 * np.log(0.5)
    assert found.kl_first == pytest.approx(first, rel=1e-6)
    assert found.kl == pytest.approx((first + second) / 2, rel=1e-6)
    assert found.agree == 0.5


def test_divergence_of_the_same_is_exactly_nothing() -> None:
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)) * 10
    found = divergence(logits, logits.clone())
    assert (found.kl, found.kl_first, found.agree) == (0.0, 0.0, 1.0)


def test_divergence_of_nearly_the_same_is_not_negative() -> None:
    logits = torch.randn(50, 1000, generator=torch.Generator().manual_seed(0)) * 10
    assert divergence(logits, logits + 1e-5 * torch.randn(logits.shape)).kl >= 0


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("The cat sat.", "the cat sat", 1.0),
        ("the cat", "the black cat sat", 2 * 2 / 6),
        ("sat cat", "cat sat", 2 * 1 / 4),
        ("a b c d", "x b y d", 2 * 2 / 8),
        ("dog", "cat", 0.0),
        ("", "cat", 0.0),
        ("...", "", 1.0),
    ],
)
def test_rouge_l(answer: str, reference: str, score: float) -> None:
    assert rouge_l(answer, reference) == pytest.approx(score)


@pytest.mark.parametrize(
    ("answer", "golds", "score"),
    [
        ("It was the Exeter College.", ["Exeter College"], 2 * 2 / (4 + 2)),
        ("an apple", ["The Apple"], 1.0),
        ("apple", ["pear", "apple pie"], 2 / 3),
        ("pie pie", ["pie"], 2 / 3),
        ("nothing", ["pear"], 0.0),
        ("the", ["a"], 1.0),
    ],
)
def test_token_f1(answer: str, golds: list[str], score: float) -> None:
    assert token_f1(answer, golds) == pytest.approx(score)


def test_an_interval_holds_the_mean_and_narrows_with_the_sample() -> None:
    values = np.random.default_rng(0).random(20).tolist()
    few, many = estimate(values, 1), estimate(values * 25, 1)
    assert few.mean == pytest.approx(many.mean) == pytest.approx(np.mean(values))
    for found in (few, many):
        assert found.low < found.mean < found.high
    assert (many.high - many.low) * 4 < few.high - few.low
    error = np.std(values) / np.sqrt(20)
    assert few.high - few.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_an_interval_is_the_same_for_the_same_seed() -> None:
    values = np.random.default_rng(0).random(20).tolist()
    assert estimate(values, 3) == estimate(values, 3)
    assert estimate(values, 3) != estimate(values, 4)


def test_one_value_has_an_interval_of_no_width() -> None:
    found = estimate([0.25], 0)
    assert (found.mean, found.low, found.high) == (0.25, 0.25, 0.25)


def test_a_ratio_is_of_pairs() -> None:
    """What is twice as much for every question is twice as much however the questions are drawn."""
    others = [0.1, 5.0, 0.02, 1.0]
    found = paired_ratio([2 * one for one in others], others, seed=0)
    assert found is not None
    assert (found.low, found.mean, found.high) == pytest.approx((2, 2, 2))
    apart = paired_ratio([10.0, 0.2, 0.04, 2.0], others, seed=0)
    assert apart is not None
    assert apart.low < apart.mean < apart.high


def test_nothing_is_a_ratio_of_nothing() -> None:
    assert paired_ratio([1.0, 2.0], [0.0, 0.0], seed=0) is None
