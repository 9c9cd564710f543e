"""One ranking out of several, and one with less repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from retriever.types import IntArray, Vectors

RANK_OFFSET = 60  # of reciprocal rank fusion, as its authors chose it


def fuse(rankings: Sequence[Sequence[int]], weights: Sequence[float] | None = None) -> dict[int, float]:
    """Reciprocal rank fusion: a chunk scores 1 / (60 + rank) in each ranking that has it. Best first, then by id."""
    totals: dict[int, float] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for rank, chunk in enumerate(ranking, start=1):
            totals[chunk] = totals.get(chunk, 0.0) + weight / (RANK_OFFSET + rank)
    return best_first(totals)


def best_first(scores: Mapping[int, float]) -> dict[int, float]:
    return dict(sorted(scores.items(), key=lambda one: (-one[1], one[0])))


def diversify(relevance: Sequence[float], vectors: Vectors, k: int, share: float) -> IntArray:
    """Maximal marginal relevance: places of the k chosen, in the order of choice.

    Each is the one with the most of share · relevance − (1 − share) · likeness to the closest of those chosen before.
    A share of 1 keeps the order of relevance.
    """
    left = np.asarray(relevance, dtype=np.float64)
    closest = np.full(len(left), -np.inf)
    chosen: list[int] = []
    free = np.ones(len(left), dtype=bool)
    while len(chosen) < min(k, len(left)):
        likeness = np.where(np.isfinite(closest), closest, 0.0)
        gain = np.where(free, share * left - (1 - share) * likeness, -np.inf)
        best = int(np.argmax(gain))
        chosen.append(best)
        free[best] = False
        closest = np.maximum(closest, (vectors @ vectors[best]).astype(np.float64))
    return np.array(chosen, dtype=np.int64)
