"""Cache-Craft's scores (section 3.1): how much of what a chunk's KV leaned on a new prompt still holds.

Row 0 of a profile, the System, is part of every prompt and says nothing about a change of context: it is left out of
every sum of a reuse score. Copies: the second time a chunk stands in a context it is an element of its own, so the k-th
copy of the old context is the k-th copy of the new prefix, and all equations hold as they are.
"""

from __future__ import annotations

import math
from bisect import bisect, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ragcache.types import Profile

ABSENT = -1


@dataclass(frozen=True)
class Reuse:
    """The scores of one variant in one new prompt."""

    beta: float  # eq 6, [0, 1]: share of the attention to the old context whose chunks are still in the prefix
    gamma: float  # eq 7, [0, 1]: share of the pairs of these chunks that changed their order
    cci: float  # eq 11, [0.5, 1]: how much the context made the KV what it is
    exact: bool  # old context == new prefix
    places: tuple[int, ...]  # of the old context's chunks in the new prefix, see Prefix.matches

    @property
    def beta_adjusted(self) -> float:
        """β', eq 8."""
        return self.beta * (1.0 - self.gamma)

    def cfo(self, alpha: float = 1.0) -> float:
        """Cache fix overhead, eq 12: the share of the chunk's tokens to recompute, at most all of them."""
        return min(1.0, alpha * self.cci * (1.0 - self.beta_adjusted))


class Prefix:
    """Chunk hashes that stand before a place, in order. It grows as a plan does, and what is asked of it for a place
    costs no more the later that place stands.
    """

    def __init__(self, chunks: Iterable[str] = ()) -> None:
        self._chunks: list[str] = []
        self._places: dict[str, list[int]] = {}
        for chunk in chunks:
            self.append(chunk)

    def append(self, chunk: str) -> None:
        self._places.setdefault(chunk, []).append(len(self._chunks))
        self._chunks.append(chunk)

    def __len__(self) -> int:
        return len(self._chunks)

    def equals(self, context: Sequence[str]) -> bool:
        return len(context) == len(self) and list(context) == self._chunks

    def matches(self, context: Sequence[str]) -> tuple[int, ...]:
        """Per chunk of the old context: its place here, ABSENT where it has none."""
        copies: dict[str, int] = {}
        found = []
        for chunk in context:
            places, copy = self._places.get(chunk, ()), copies.get(chunk, 0)
            found.append(places[copy] if copy < len(places) else ABSENT)
            copies[chunk] = copy + 1
        return tuple(found)


def reuse_of(profile: Profile, context: Sequence[str], prefix: Prefix) -> Reuse:
    """Scores of a variant computed behind `context` (chunk hashes, in order) in a prompt with `prefix` before it."""
    assert len(profile.lengths) == len(context) + 1, (len(profile.lengths), len(context))
    places = prefix.matches(context)
    return Reuse(
        beta=_overlap(profile, places, prefix),
        gamma=_order_penalty([place for place in places if place != ABSENT]),
        cci=context_impact(profile),
        exact=prefix.equals(context),
        places=places,
    )


def context_impact(profile: Profile) -> float:
    """CCI, eqs 9 to 11, of a profile that is already a mean over layers.

    A chunk of one token has no intra-attention: any context then outweighs it without bound (1), and none at all is the
    lower end of the scale (0.5), which is also what a chunk without context has.
    """
    n = len(profile.intra)
    assert n > 0, n
    assert all(length > 0 for length in profile.lengths[1:]), profile.lengths
    sums = zip(profile.context_sums, profile.lengths[1:], strict=True)
    outside = sum(attention / (n * length) for attention, length in sums)
    inside = profile.own_sum / n**2
    if outside == 0.0:
        return 0.5
    return 1.0 / (1.0 + math.exp(-outside / inside)) if inside > 0.0 else 1.0


def _overlap(profile: Profile, places: Sequence[int], prefix: Prefix) -> float:
    """β, eq 6, and where its denominator is zero:

    - no old context: nothing of the new prefix was seen, so 0, or 1 when there is no prefix either;
    - a context that got no attention at all: every chunk weighs the same.
    """
    if not places:
        return 0.0 if prefix else 1.0
    weights = profile.context_sums if any(profile.context_sums) else (1.0,) * len(places)
    kept = sum(weight for weight, place in zip(weights, places, strict=True) if place != ABSENT)
    # Rounding alone could lift the ratio over 1.
    return min(1.0, kept / sum(weights))


def _order_penalty(places: Sequence[int]) -> float:
    """γ, eq 7: discordant pairs over all pairs; fewer than two shared chunks have no order."""
    if all(earlier < later for earlier, later in pairwise(places)):
        return 0.0
    seen: list[int] = []
    discordant = 0
    for place in places:
        discordant += len(seen) - bisect(seen, place)
        insort(seen, place)
    return discordant / math.comb(len(places), 2)
