"""Cache-Craft's reuse scores (section 3.1): how much of a variant's old context the new prompt still holds.

Row 0 of a profile, the System, is part of every prompt and says nothing about a change of context: it is left out of
every sum here. Copies: the second time a chunk stands in a context it is an element of its own, so the k-th copy of the
old context is the k-th copy of the new prefix, and all equations hold as they are.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from ragcache.types import Profile

ABSENT = -1


@dataclass(frozen=True)
class Reuse:
    """The scores of one variant in one new prompt."""

    beta: float  # eq 6, [0, 1]: share of the attention to the old context whose chunks are still in the prefix
    gamma: float  # eq 7, [0, 1]: share of the pairs of these chunks that changed their order
    cci: float  # eq 11, [0.5, 1]: how much the context made the KV what it is
    exact: bool  # old context == new prefix

    @property
    def beta_adjusted(self) -> float:
        """β', eq 8."""
        return self.beta * (1.0 - self.gamma)

    def cfo(self, alpha: float = 1.0) -> float:
        """Cache fix overhead, eq 12: the share of the chunk's tokens to recompute, at most all of them."""
        return min(1.0, alpha * self.cci * (1.0 - self.beta_adjusted))


def reuse_of(profile: Profile, context: Sequence[str], prefix: Sequence[str]) -> Reuse:
    """Scores of a variant computed behind `context` in a prompt with `prefix` before it: chunk hashes, in order."""
    assert len(profile.lengths) == len(context) + 1, (len(profile.lengths), len(context))
    places = matches(context, prefix)
    return Reuse(
        beta=_overlap(profile, places, prefix),
        gamma=_order_penalty([place for place in places if place != ABSENT]),
        cci=context_impact(profile),
        exact=tuple(context) == tuple(prefix),
    )


def matches(context: Sequence[str], prefix: Sequence[str]) -> list[int]:
    """Per chunk of the old context: its place in the new prefix, ABSENT where it has none."""
    waiting: dict[str, deque[int]] = {}
    for place, chunk in enumerate(prefix):
        waiting.setdefault(chunk, deque()).append(place)
    return [waiting[chunk].popleft() if waiting.get(chunk) else ABSENT for chunk in context]


def context_impact(profile: Profile) -> float:
    """CCI, eqs 9 to 11, of a profile that is already a mean over layers.

    A chunk of one token has no intra-attention: any context then outweighs it without bound (1), and none at all is the
    lower end of the scale (0.5), which is also what a chunk without context has.
    """
    n = len(profile.intra)
    assert n > 0, n
    assert all(length > 0 for length in profile.lengths[1:]), profile.lengths
    per_chunk = profile.inter[1:].sum(axis=1, dtype=np.float64)
    outside = float((per_chunk / (n * np.asarray(profile.lengths[1:], dtype=np.float64))).sum())
    inside = float(profile.intra.sum(dtype=np.float64)) / n**2
    if outside == 0.0:
        return 0.5
    return 1.0 / (1.0 + math.exp(-outside / inside)) if inside > 0.0 else 1.0


def _overlap(profile: Profile, places: Sequence[int], prefix: Sequence[str]) -> float:
    """β, eq 6, and where its denominator is zero:

    - no old context: nothing of the new prefix was seen, so 0, or 1 when there is no prefix either;
    - a context that got no attention at all: every chunk weighs the same.
    """
    if not places:
        return 0.0 if prefix else 1.0
    weights = profile.inter[1:].sum(axis=1, dtype=np.float64)
    if not weights.any():
        weights = np.ones(len(places))
    kept = np.asarray(places) != ABSENT
    # Rounding alone could lift the ratio over 1.
    return min(1.0, float(weights[kept].sum() / weights.sum()))


def _order_penalty(places: Sequence[int]) -> float:
    """γ, eq 7: discordant pairs over all pairs; fewer than two shared chunks have no order."""
    if all(earlier < later for earlier, later in pairwise(places)):
        return 0.0
    pairs = list(combinations(places, 2))
    return sum(earlier > later for earlier, later in pairs) / len(pairs)
