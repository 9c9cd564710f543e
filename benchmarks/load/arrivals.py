"""What arrives, and when: requests of a Poisson process, each for some popular chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragcache.errors import ConfigError


def poisson_arrivals(rate: float, seconds: float, seed: Sequence[int]) -> list[float]:
    """Moments in [0, seconds) of independent requests, `rate` per second on average; the first one is at 0."""
    assert rate > 0, rate
    assert seconds > 0, seconds
    source = np.random.default_rng(seed)
    moments, moment = [], 0.0
    while moment < seconds:
        moments.append(moment)
        moment += float(source.exponential(1 / rate))
    return moments


@dataclass(frozen=True)
class Popularity:
    """Zipf's: the chunk of rank r is asked for 1 / r**exponent times as often as that of rank 1."""

    chunks: int
    exponent: float
    seed: int

    def draw(self, requests: int, each: int, seed: Sequence[int]) -> list[tuple[int, ...]]:
        """`each` different chunks per request, in the order drawn: popular ones tend to come first.

        `seed` is that of the requests; which chunks are popular hangs on our own.
        """
        if each > self.chunks:
            raise ConfigError(f"{each} different chunks per request, but there are {self.chunks}: give more --data")
        weights = 1 / np.arange(1, self.chunks + 1) ** self.exponent
        names = np.random.default_rng(self.seed).permutation(self.chunks)
        source = np.random.default_rng(seed)
        drawn = [
            source.choice(names, size=each, replace=False, p=weights / weights.sum(), shuffle=False)
            for _ in range(requests)
        ]
        return [tuple(map(int, one)) for one in drawn]


def percentile(values: Sequence[float], share: float) -> float:
    """With linear interpolation between the two nearest."""
    return float(np.percentile(np.asarray(values), share))
