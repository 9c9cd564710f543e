"""How far an answer is from another, and how sure a mean is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ragcache.engine.torch.forcing import kl_by_step

RESAMPLES = 2000


@dataclass(frozen=True)
class Divergence:
    """Of the linked distributions from the full ones, over the tokens of one answer."""

    kl: float  # mean of KL(full ‖ linked), in nats
    kl_first: float  # at the first token
    agree: float  # share of tokens whose most likely one is the same


def divergence(full: torch.Tensor, linked: torch.Tensor) -> Divergence:
    """Logits [tokens, vocabulary] of the same forced answer."""
    kl = kl_by_step(full, linked)
    agree = (full.argmax(-1) == linked.argmax(-1)).double().mean()
    return Divergence(float(kl.mean()), float(kl[0]), float(agree))


@dataclass(frozen=True)
class Mean:
    """A mean over questions and its 95 % interval."""

    mean: float
    low: float
    high: float


def estimate(values: Sequence[float], seed: int) -> Mean:
    """Percentile bootstrap over the questions; the same seed gives the same interval."""
    sample = np.asarray(values, dtype=np.float64)
    assert len(sample)
    draws = np.random.default_rng(seed).integers(0, len(sample), (RESAMPLES, len(sample)))
    low, high = np.percentile(sample[draws].mean(axis=1), (2.5, 97.5))
    return Mean(float(sample.mean()), float(low), float(high))


def paired_ratio(values: Sequence[float], others: Sequence[float], seed: int) -> Mean | None:
    """The mean of `values` over that of `others`, which are of the same questions in the same order; none where there
    is nothing to divide by.
    """
    pairs = np.asarray([values, others], dtype=np.float64)  # [2, questions]
    drawn = np.random.default_rng(seed).integers(0, pairs.shape[1], (RESAMPLES, pairs.shape[1]))
    means = pairs[:, drawn].mean(axis=-1)  # [2, resamples]
    if not (means[1] > 0).all():
        return None
    low, high = np.percentile(means[0] / means[1], (2.5, 97.5))
    return Mean(float(pairs[0].mean() / pairs[1].mean()), float(low), float(high))
