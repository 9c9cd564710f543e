"""What an engine's computations and its tiers take, from what was measured.

A stretch of time is put down to what was done in it (`Work`): times that the weights were read, rows that were
computed, positions that these attended to, cached tokens that were placed. What each of these takes is estimated from
all stretches together, the newest counting most, so one estimate holds for prompts of every length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ragcache.host import BriefLock
from ragcache.loads import FAR, Loads, Ratios, is_within
from ragcache.plan_errors import PlanErrors

# Seconds for each part of Work, until something was measured: a small model on two cores. Only their proportions count
# then, and a few prompts overrule them.
PRIOR = np.array([1e-2, 3.5e-4, 1.8e-7, 8e-6])
PRIOR_WEIGHT = 0.005  # of it, against a measurement's 1
KNOWN_WEIGHT = 1.0  # of what the last run has left
KEPT = 0.97  # of the weight of a measurement, with each one of its kind that follows
OTHERS_KEPT = 0.998  # with each one of another kind
ROUNDS = 30  # of coordinate descent: there are four unknowns
SHARE_PRIOR = 0.08  # of the reused tokens that a linker computes again, until it has linked something
SHARE_TOKENS = 1e3  # that the first guess stands for, or what the last run has left
LEAST_PART = 0.5  # of what was predicted: a shorter measurement counts as so long, since one alone proves nothing
SPREAD = 0.1  # of what computing takes, relative to what was predicted: the first guess
MOST_SPREAD = 0.5
SETTLED = 5  # measurements after which the spread is learnt: the first ones tell how wrong the guesses were
SPREAD_KEPT = 0.9
MOST_OBSERVED = 16  # measurements that nobody has asked about
STALE = 3  # measurements, by which one more may be judged without those: a prompt brings as many

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

    @classmethod
    def at(cls, positions: npt.NDArray[np.int64]) -> Work:
        """These rows."""
        return cls(rows=len(positions), attended=int(positions.sum()) + len(positions))

    def __add__(self, other: Work) -> Work:
        return Work(
            self.passes + other.passes,
            self.rows + other.rows,
            self.attended + other.attended,
            self.placed + other.placed,
        )

    def __mul__(self, factor: float) -> Work:
        return Work(factor * self.passes, factor * self.rows, factor * self.attended, factor * self.placed)

    def array(self) -> Floats:
        return np.array((self.passes, self.rows, self.attended, self.placed))


class Rates:
    """Of one engine on one machine. Threads may share it; it holds a few numbers, however much is measured."""

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        """`known`: what `told` gave in the last run; what it tells of others, or nonsense, is left out."""
        self._lock = BriefLock()
        # Least squares of the relative error: a short stretch tells as much as a long one.
        # Each kind of stretch fades by itself, or the many steps of an answer would efface what a prefill takes.
        self._squares: Floats = np.zeros((len(PRIOR), len(PRIOR), len(PRIOR)))
        self._products: Floats = np.zeros((len(PRIOR), len(PRIOR)))
        self._prior, self._weight = PRIOR, PRIOR_WEIGHT
        self._observed: list[tuple[Work, float]] = []  # and not learnt from yet
        self._rates: tuple[float, ...] | None = None
        self._since = 0  # measurements that these do not know
        self._spread, self._measured = SPREAD, 0
        self._loads = Loads()  # by tier
        self._shares = Ratios(SHARE_PRIOR, SHARE_TOKENS)  # by linker and its settings
        self._plans = PlanErrors()
        if known is not None:
            self._take_up(known)

    def copy(self) -> Rates:
        """That learns for itself."""
        made = Rates()
        with self._lock:
            self._learn()
            made.__dict__.update({name: deepcopy(self.__dict__[name]) for name in made.__dict__ if name != "_lock"})
        return made

    # -- computing --------------------------------------------------------------------------------------------------

    def observe(self, work: Work, seconds: float) -> None:
        """Whoever asks next learns from it: by itself, in each step of an engine, that takes several times as long."""
        if seconds > 0.0 and work != Work():
            with self._lock:
                self._observed.append((work, seconds))
                if len(self._observed) >= MOST_OBSERVED:
                    self._learn()

    def _learn(self) -> None:
        observed, self._observed = self._observed, []
        for work, seconds in observed:
            self._learn_from(work, seconds)

    def _learn_from(self, work: Work, seconds: float) -> None:
        predicted = self._predicted(work, stale=STALE)
        if seconds < LEAST_PART * predicted:
            predicted = self._predicted(work)
        parts = work.array()
        relative = parts / max(seconds, LEAST_PART * predicted)
        kind = int(np.argmax(parts * PRIOR))  # what most of its time goes to
        kept = np.full(len(parts), OTHERS_KEPT)
        kept[kind] = KEPT
        self._squares *= kept[:, None, None]
        self._products *= kept[:, None]
        self._squares[kind] += np.outer(relative, relative)
        self._products[kind] += relative
        self._measured, self._since = self._measured + 1, self._since + 1
        if self._measured > SETTLED and predicted > 0.0 and work.rows:
            off = min(1.0, abs(seconds / predicted - 1.0))
            self._spread = (SPREAD_KEPT * self._spread**2 + (1 - SPREAD_KEPT) * off**2) ** 0.5

    def seconds(self, work: Work, *, fresh: bool = True) -> float:
        """That this would take. Not `fresh`: by what was learnt before the last measurements, at no cost."""
        with self._lock:
            if fresh:
                self._learn()
            return self._predicted(work, stale=0 if fresh else MOST_OBSERVED)

    @property
    def settled(self) -> bool:
        """Whether enough was measured in this run to tell what has not been."""
        with self._lock:
            self._learn()
            return self._measured > SETTLED

    def _predicted(self, work: Work, stale: int = 0) -> float:
        """By rates that have missed so many measurements at most: to solve takes longer than all else here."""
        if self._rates is None or self._since > stale:
            self._rates, self._since = self._solved(), 0
        passes, rows, attended, placed = self._rates
        return work.passes * passes + work.rows * rows + work.attended * attended + work.placed * placed

    @property
    def spread(self) -> float:
        """How far computing is off what was predicted, as a share of that: the root of the mean square, of late."""
        with self._lock:
            self._learn()
            return min(MOST_SPREAD, self._spread)

    def _solved(self) -> tuple[float, ...]:
        """The rates nearest to what was measured, none below zero."""
        squares = self._squares.sum(0) + np.diag(self._weight / self._prior**2)
        products = self._products.sum(0) + self._weight / self._prior
        scale = self._prior  # the unknowns are of very different sizes
        found: list[float] = (np.linalg.solve(squares * np.outer(scale, scale), products * scale) * scale).tolist()
        return tuple(found) if min(found) >= 0.0 else _descended(squares.tolist(), products.tolist())

    # -- loading ----------------------------------------------------------------------------------------------------

    def observe_load(self, tier: str, nbytes: int, seconds: float) -> None:
        """Of one piece: what it took beyond those that came before it."""
        if nbytes > 0 and seconds >= 0.0:
            with self._lock:
                self._loads.observe(tier, nbytes, seconds)

    def load_seconds(self, tier: str, nbytes: int, reads: int = 1) -> float:
        """Of so many reads together."""
        with self._lock:
            return self._loads.seconds(tier, nbytes, reads)

    def bring_seconds(self, tier: str, nbytes: int, tokens: int) -> float:
        """To read an entry, and to place it."""
        return self.load_seconds(tier, nbytes) + self.seconds(Work(placed=tokens))

    def has_read(self, tier: str) -> bool:
        with self._lock:
            return self._loads.knows(tier)

    def not_read(self, tier: str) -> None:
        """Since it would have been too slow, so nothing will tell whether it is better by now."""
        with self._lock:
            self._loads.forget(tier)

    def load_spread(self, tier: str) -> float:
        """As `spread`, of what a tier brings."""
        with self._lock:
            return min(MOST_SPREAD, self._loads.spread(tier))

    # -- linking ----------------------------------------------------------------------------------------------------

    def observe_link(self, linker: str, reusable: int, computed: float) -> None:
        """`linker`: with its settings. `computed`: again, of so many reusable tokens."""
        if reusable > 0:
            with self._lock:
                self._shares.observe(linker, min(computed, reusable), reusable)

    def link_share(self, linker: str) -> float:
        """Of the reusable tokens, those that the linker will compute all the same; at most all."""
        with self._lock:
            return self._shares.of(linker)

    def declined(self, linker: str, tiers: Iterable[str]) -> None:
        """They were not used, so nothing will tell whether they are better by now."""
        with self._lock:
            self._shares.forget(linker)
            for tier in tiers:
                self._loads.forget(tier)

    # -- whole prompts ----------------------------------------------------------------------------------------------

    def observe_plan(self, planned: float, seconds: float) -> None:
        """What a first token took that was foretold by `first_token`."""
        with self._lock:
            self._plans.observe(planned, seconds)

    def first_token(self, seconds: float) -> float:
        """When it comes, whose work takes so long."""
        with self._lock:
            return seconds + self._plans.beside

    @property
    def plan_error(self) -> float | None:
        """The median of how far plans of late were off, as a share of what it took; None after too few."""
        with self._lock:
            return self._plans.error

    # -- from one run to the next -----------------------------------------------------------------------------------

    def told(self) -> dict[str, Any] | None:
        """As JSON has it; None while nothing was measured."""
        with self._lock:
            self._learn()
            if not self._measured:
                return None
            return {
                "work": list(self._solved()),
                "spread": self._spread,
                "loads": self._loads.told(),
                "shares": self._shares.told(),
                "beside": self._plans.beside,
            }

    def _take_up(self, known: Mapping[str, Any]) -> None:
        """As first guesses that count as much as a measurement or two. It may have been written by anybody."""
        work, spread = known.get("work"), known.get("spread")
        if isinstance(work, list) and _is_sound(work):  # none is quite nothing: a first guess is divided by
            self._prior = np.maximum(work, 1e-3 * max(work) * PRIOR / PRIOR.max())
            self._weight = KNOWN_WEIGHT
        if spread is not None and is_within(spread, 1.0):
            self._spread = spread
        self._plans.take_up(known.get("beside"))
        for told, kept in (("loads", self._loads), ("shares", self._shares)):
            found = known.get(told)
            if isinstance(found, dict):
                kept.take_up({name: value for name, value in found.items() if isinstance(name, str)})


def _is_sound(work: list[Any]) -> bool:
    """Whether a machine can be so slow, and so quick: some parts may well have taken no time that could be told."""
    if len(work) != len(PRIOR):
        return False
    pairs = list(zip(work, PRIOR.tolist(), strict=True))
    return all(is_within(one, FAR * first) for one, first in pairs) and any(one * FAR >= first for one, first in pairs)


def _descended(squares: list[list[float]], products: list[float]) -> tuple[float, ...]:
    """The same with none below zero, by coordinate descent."""
    rates = PRIOR.tolist()
    for _ in range(ROUNDS):
        for place, row in enumerate(squares):
            rest = products[place] - sum(map(float.__mul__, row, rates)) + row[place] * rates[place]
            rates[place] = max(0.0, rest / row[place])
    return tuple(rates)
