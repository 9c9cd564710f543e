"""How far an answer is from another, and how sure a mean is."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ragcache.engine.torch.forcing import kl_by_step

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")
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


def words(text: str) -> list[str]:
    return text.lower().translate(PUNCTUATION).split()


def rouge_l(answer: str, reference: str) -> float:
    """F-measure of the longest common subsequence of words; two answers without words are the same."""
    ours, theirs = words(answer), words(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    common = _common(ours, theirs)
    return 2 * common / (len(ours) + len(theirs))


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = row
        row = [0]
        for place, other in enumerate(right):
            row.append(before[place] + 1 if one == other else max(before[place + 1], row[place]))
    return row[-1]


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """SQuAD's: shared words, without articles, against the best of the right answers."""
    assert golds
    return max(_f1(_squad_words(answer), _squad_words(gold)) for gold in golds)


def _squad_words(text: str) -> list[str]:
    return ARTICLES.sub(" ", " ".join(words(text))).split()


def _f1(ours: list[str], theirs: list[str]) -> float:
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))


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
