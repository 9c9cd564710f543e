"""When what is read comes, and whether it had better be computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

from ragcache.loader import SegmentPiece
from ragcache.rates import Rates

LATE = 1.5  # times what was expected: then what is read is taken to need as long again as it has taken
AT_ONCE = 0.5  # of the time that is left for computing
HOPELESS = 3.0  # times as long at most, where it took many times what was expected


@dataclass(frozen=True)
class Expectation:
    """When what is left comes, if nothing more is computed. All in seconds."""

    waiting: float  # to read what nobody has begun
    reading: float  # what is read now takes, in all
    so_far: float  # since a piece came, or the first was begun
    most: float = HOPELESS

    @property
    def overdue(self) -> float:
        """For so long nothing has come, where that is too long: several times as long where it is very much so."""
        if self.so_far <= LATE * self.reading:
            return 0.0
        times = min(self.most, max(1.0, self.so_far / self.reading - 1.0)) if self.reading > 0.0 else 1.0
        return self.so_far * times

    @property
    def left(self) -> float:
        return self.waiting + self.brought

    @property
    def brought(self) -> float:
        """Until what is read now is here."""
        return self.overdue or max(0.0, self.reading - self.so_far)

    def affords(self, seconds: float, saved: float) -> bool:
        """To compute for so long at a time what saves so much of what is left: half of what the rest takes then, and
        that of the rest again, is soon all, and may err by half.
        """
        return seconds <= AT_ONCE * (self.left - saved)

    def allows(self, seconds: float, left: float, doubt: float, *, final: bool) -> bool:
        """To compute for so long what comes in `left`; see `Loading.claim`."""
        return seconds + doubt <= left if final else seconds < self.overdue


def expected(rates: Rates, waiting: float, reading: Sequence[SegmentPiece], so_far: float) -> Expectation:
    """By the running rates, of what nobody has begun, in seconds, and of what is read now."""
    read = sum(rates.load_seconds(one.tier, one.nbytes) for one in reading)
    known = bool(reading) and rates.has_read(reading[0].tier)  # a first guess is many times off
    return Expectation(waiting, read, so_far if reading else 0.0, HOPELESS if known else 1.0)


def saved(rates: Rates, piece: SegmentPiece, until: int) -> float:
    """Seconds of reading, where all of this before a position is computed; its last slice is read first, and had."""
    rest = piece.behind(min(until, piece.last_slice))
    return rates.load_seconds(piece.tier, piece.nbytes) - rates.load_seconds(piece.tier, rest.nbytes)


def doubt(rates: Rates, computing: float, loading: float, tier: str) -> float:
    """Seconds by which the two may differ otherwise than predicted: a slice begun is not given up."""
    return hypot(rates.spread * computing, rates.load_spread(tier) * loading)
