"""How long things take here: running estimates from what was measured, for whoever must choose between two ways.

A stretch of time is put down to what was done in it (`Work`): times that the weights were read, rows that were
computed, positions that these attended to, cached tokens that were placed. What each of these takes is estimated from
all stretches together, the newest counting most, so one estimate holds for prompts of every length.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Seconds for each part of Work, until something was measured: a small model on two cores. Only their proportions count
# then, and a few prompts overrule them.
PRIOR = np.array([1e-2, 3.5e-4, 1.8e-7, 8e-6])
PRIOR_WEIGHT = 0.005  # of it, against a measurement's 1
KEPT = 0.97  # of the weight of a measurement, with each one that follows
ROUNDS = 30  # of coordinate descent: there are four unknowns
LOAD_PRIOR = 1e-9  # seconds a byte, from a tier that nothing was read from yet
SHARE_PRIOR = 0.08  # of the reused tokens that a linker computes again, until it has linked something

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """What was, or is to be, done; sums of it are what is done one after the other."""

    passes: float = 0.0  # times that the weights are read; a probe reads some layers' alone
    rows: float = 0.0  # tokens through all layers
    attended: float = 0.0  # positions that these attend to, summed over the rows
    placed: float = 0.0  # cached tokens turned to their positions and written there

    @classmethod
    def of_rows(cls, start: int, end: int) -> Work:
        """Positions [start, end), whoever reads the weights for them."""
        count = max(0, end - start)
        return cls(rows=count, attended=count * (start + end + 1) / 2)

    def __add__(self, other: Work) -> Work:
        return Work(*(mine + theirs for mine, theirs in zip(self._parts, other._parts, strict=True)))

    def __mul__(self, factor: float) -> Work:
        return Work(*(factor * part for part in self._parts))

    @property
    def _parts(self) -> tuple[float, float, float, float]:
        return (self.passes, self.rows, self.attended, self.placed)

    def array(self) -> Floats:
        return np.array(self._parts)


class Rates:
    """Of one engine on one machine. Threads may share it; it holds a few numbers, however much is measured."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Least squares of the relative error: a short stretch tells as much as a long one.
        self._squares: Floats = np.zeros((len(PRIOR), len(PRIOR)))
        self._products: Floats = np.zeros(len(PRIOR))
        self._rates: Floats | None = PRIOR
        self._loads: dict[str, float] = {}  # seconds a byte, by tier
        self._shares: dict[str, float] = {}  # by linker

    # -- computing --------------------------------------------------------------------------------------------------

    def observe(self, work: Work, seconds: float) -> None:
        parts = work.array()
        if seconds <= 0.0 or not parts.any():
            return
        relative = parts / seconds
        with self._lock:
            self._squares = KEPT * self._squares + np.outer(relative, relative)
            self._products = KEPT * self._products + relative
            self._rates = None

    def seconds(self, work: Work) -> float:
        """That this would take."""
        with self._lock:
            if self._rates is None:
                self._rates = self._solved()
            return float(work.array() @ self._rates)

    def _solved(self) -> Floats:
        """The rates nearest to what was measured, none below zero."""
        squares = self._squares + np.diag(PRIOR_WEIGHT / PRIOR**2)
        products = self._products + PRIOR_WEIGHT / PRIOR
        rates = PRIOR.copy()
        for _ in range(ROUNDS):
            for place in range(len(rates)):
                rest = products[place] - squares[place] @ rates + squares[place, place] * rates[place]
                rates[place] = max(0.0, rest / squares[place, place])
        return rates

    # -- loading ----------------------------------------------------------------------------------------------------

    def observe_load(self, tier: str, nbytes: int, seconds: float) -> None:
        if nbytes > 0 and seconds >= 0.0:
            self._mixed(self._loads, tier, seconds / nbytes)

    def load_seconds(self, tier: str, nbytes: int) -> float:
        with self._lock:
            return nbytes * self._loads.get(tier, LOAD_PRIOR)

    # -- linking ----------------------------------------------------------------------------------------------------

    def observe_link(self, linker: str, reusable: int, computed: float) -> None:
        """`computed`: of so many reusable tokens, its probes charged."""
        if reusable > 0:
            self._mixed(self._shares, linker, computed / reusable)

    def link_share(self, linker: str) -> float:
        """Of the reusable tokens, those that the linker will compute all the same."""
        with self._lock:
            return self._shares.get(linker, SHARE_PRIOR)

    def _mixed(self, means: dict[str, float], name: str, value: float) -> None:
        with self._lock:
            means[name] = value if name not in means else 0.8 * means[name] + 0.2 * value
