"""What tiers bring, and which part linkers compute again: by name, of sums that fade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ragcache.store.findings import BUCKET, RAM

LOAD_PRIOR = 1e-9  # seconds a byte, from a tier that nothing was read from yet
LOAD_PRIORS = {BUCKET: 2e-8, RAM: 1e-11}  # over a network; by being found, since what is placed counts as that
PRIOR_BYTES = 1e6  # that this guess stands for
SPREAD = 0.1  # of what a read takes, relative to what was predicted: the first guess
RUN = 4  # reads whose time is compared with what was predicted: of those at once one may come as soon as the other
NAMES = 64  # tiers and linkers that are remembered: a linker's settings are a client's to choose
FADES = 0.9  # what was seen of a tier or linker, with each new sight of it
FORGETS = 0.98  # with each time that it was declined, or one bad sight of it would be the last
# Reads whose sizes differ by less than this (their variance, over the square of their mean) do not tell what each read
# takes from what each byte does.
LEAST_VARIANCE = 0.05
FEWEST = 2.5  # reads, faded, that tell it
KNOWN_SIZES = (1e5, 1e6, 1e7)  # bytes of the reads that stand for what the last run has left
FAR = 1e4  # times the first guess, or a part of it: a record that claims more or less is none
LONGEST = 10.0  # seconds of a read whatever its size, by the same rule


class Ratios:
    """By name, of two sums that both fade, each begun with a first guess."""

    def __init__(self, prior: float, weight: float):
        """`weight`: the lower sum that the first guess stands for."""
        self._first = (prior * weight, weight)
        self._sums: dict[str, tuple[float, float]] = {}

    def of(self, name: str) -> float:
        upper, lower = self._sums.get(name, self._first)
        return upper / lower

    def observe(self, name: str, upper: float, lower: float) -> None:
        before = self._sums.pop(name, self._first)
        self._sums[name] = (FADES * before[0] + upper, FADES * before[1] + lower)
        _bound(self._sums)

    def forget(self, name: str) -> None:
        """Some of it, for the first guess."""
        if name in self._sums:
            pairs = zip(self._sums[name], self._first, strict=True)
            upper, lower = (FORGETS * seen + (1 - FORGETS) * first for seen, first in pairs)
            self._sums[name] = (upper, lower)

    def told(self) -> dict[str, float]:
        return {name: self.of(name) for name in self._sums}

    def take_up(self, told: Mapping[str, Any]) -> None:
        """Shares of a whole, of the last run."""
        for name, share in list(told.items())[-NAMES:]:
            if is_within(share, 1.0):
                self._sums[name] = (share * self._first[1], self._first[1])


@dataclass(frozen=True)
class _Reads:
    """Of one tier, faded."""

    seconds: float = LOAD_PRIOR * PRIOR_BYTES
    nbytes: float = PRIOR_BYTES
    # Without the first guess: their number, and the sums of bytes, seconds, bytes squared, and bytes times seconds.
    sums: tuple[float, ...] = (0.0,) * 5
    variance: float = SPREAD**2  # of what some reads together take over what was predicted
    # Reads since that was last compared, their seconds, the predicted ones.
    run: tuple[int, float, float] = (0, 0.0, 0.0)

    @classmethod
    def of(cls, tier: str) -> _Reads:
        """Of which nothing is known."""
        return cls(LOAD_PRIORS.get(tier, LOAD_PRIOR) * PRIOR_BYTES)

    def with_read(self, nbytes: float, seconds: float) -> _Reads:
        (a_read, a_byte), variance = self.line, self.variance
        count, took, predicted = self.run
        if self.sums[0] > 0.0:
            count, took, predicted = count + 1, took + seconds, predicted + a_read + a_byte * nbytes
        if count == RUN and predicted > 0.0:
            variance = FADES * variance + (1 - FADES) * min(1.0, abs(took / predicted - 1.0)) ** 2
            count, took, predicted = 0, 0.0, 0.0
        more = (1.0, nbytes, seconds, nbytes**2, nbytes * seconds)
        sums = tuple(FADES * before + new for before, new in zip(self.sums, more, strict=True))
        run = (count, took, predicted)
        return _Reads(FADES * self.seconds + seconds, FADES * self.nbytes + nbytes, sums, variance, run)

    @cached_property
    def line(self) -> tuple[float, float]:
        """Seconds that a read takes whatever its size, and that each of its bytes takes."""
        plain = (0.0, self.seconds / self.nbytes)
        count = self.sums[0]
        if count < FEWEST:
            return plain
        size, time, squares, products = (one / count for one in self.sums[1:])
        variance = squares - size**2
        if variance < LEAST_VARIANCE * size**2:
            return plain
        a_byte = (products - size * time) / variance
        a_read = time - a_byte * size
        return (a_read, a_byte) if a_byte >= 0.0 and a_read >= 0.0 else plain

    @property
    def spread(self) -> float:
        return float(self.variance**0.5)

    def forgotten(self, first: _Reads) -> _Reads:
        """Some of it, for the first guess. A line that is told by less and less is one no more."""
        pairs = ((self.seconds, first.seconds), (self.nbytes, first.nbytes), (self.variance, first.variance))
        seconds, nbytes, variance = (FORGETS * seen + (1 - FORGETS) * guess for seen, guess in pairs)
        return _Reads(seconds, nbytes, tuple(FORGETS * one for one in self.sums), variance, self.run)


class Loads:
    """By tier. A read takes some time whatever its size (a request to a server), and more by the byte."""

    def __init__(self) -> None:
        self._tiers: dict[str, _Reads] = {}

    def observe(self, tier: str, nbytes: float, seconds: float) -> None:
        self._tiers[tier] = (self._tiers.pop(tier, None) or _Reads.of(tier)).with_read(nbytes, seconds)
        _bound(self._tiers)

    def seconds(self, tier: str, nbytes: float, reads: int = 1) -> float:
        if nbytes <= 0:
            return 0.0
        a_read, a_byte = (self._tiers.get(tier) or _Reads.of(tier)).line
        return a_read * reads + a_byte * nbytes

    def knows(self, tier: str) -> bool:
        return tier in self._tiers

    def spread(self, tier: str) -> float:
        return (self._tiers.get(tier) or _Reads.of(tier)).spread

    def forget(self, tier: str) -> None:
        if tier in self._tiers:
            self._tiers[tier] = self._tiers[tier].forgotten(_Reads.of(tier))

    def told(self) -> dict[str, list[float]]:
        return {tier: [*reads.line, reads.spread] for tier, reads in self._tiers.items()}

    def take_up(self, told: Mapping[str, Any]) -> None:
        for tier, values in list(told.items())[-NAMES:]:
            if not (isinstance(values, list) and len(values) == 3):
                continue
            a_read, a_byte, spread = values
            first = LOAD_PRIORS.get(tier, LOAD_PRIOR)
            sound = is_within(a_read, LONGEST) and is_within(a_byte, FAR * first) and is_within(spread, 1.0)
            if sound and FAR * (a_read + a_byte * PRIOR_BYTES) >= first * PRIOR_BYTES:
                reads = _Reads()
                for nbytes in KNOWN_SIZES:
                    reads = reads.with_read(nbytes, a_read + a_byte * nbytes)
                self._tiers[tier] = replace(reads, variance=spread**2, run=(0, 0.0, 0.0))


def _bound(known: dict[str, Any]) -> None:
    while len(known) > NAMES:
        del known[next(iter(known))]


def is_within(value: Any, most: float) -> bool:
    """A number, and no other: of a file that anybody may have written."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= most
