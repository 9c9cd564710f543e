"""Compute from the front while the workers load from the back: which pieces, the scheduler's side decides, so that
ranks agree. It goes by the same rule as the loader of an engine that takes for itself (`ragcache.loader.cake`).

What the workers report is a step old, or two: it counts as of when they looked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragcache.linking.base import Positions
from ragcache.loader import SegmentPiece
from ragcache.loader.errands import Clock
from ragcache.loader.expectation import Expectation, doubt, expected, saved
from ragcache.loader.met import DEPTH
from ragcache.loader.waiting import Waiting
from ragcache.rates import Rates
from ragcache.store.findings import RAM

Seconds = Callable[[Positions, int], float]  # that rows take, in slices of so many


class Approach:
    """Of one prompt, from when its loading is ordered."""

    def __init__(self, pieces: Sequence[SegmentPiece], rates: Rates, seconds: Seconds, clock: Clock):
        self._rates, self._computing, self._clock = rates, seconds, clock
        self._left = Waiting(pieces)  # the last of which are read now
        self._looked: float | None = None
        self._moved = 0.0  # when the last piece came, or reading began

    def looked(self, when: float) -> None:
        """A worker that has begun to load reported what had come by then. On another machine its clock may be off."""
        when = min(when, self._clock())
        if self._looked is None:
            self._moved = when
        self._looked = max(self._looked or when, when)

    def came(self, piece: SegmentPiece) -> None:
        """To all ranks, by the time that they looked."""
        if piece in self._left:
            self._left.remove(piece)
            self._moved = self._looked or 0.0

    def affords(self, piece: SegmentPiece, rows: Positions, tokens: int, until: int) -> bool:
        """See `Loading.affords`."""
        if self._looked is None or piece not in self._left:
            return False
        (mine,) = self._left.of(piece.index)
        arrival, unheard = self._heard(self._looked)
        return arrival.affords(self._computing(rows, tokens), saved(self._rates, mine, until) + unheard)

    def claims(
        self, piece: SegmentPiece, rows: Positions, tokens: int, *, final: bool, until: int | None = None
    ) -> bool:
        """Whether the first piece that has not come is to be computed, in slices of so many tokens; then it comes no
        more. `rows`: with all that is lacking before it. `final` and `until`: see `Loading.claim`.
        """
        # What is in RAM is there at once; that it was placed is only not known yet.
        if self._looked is None or piece not in self._left or self._left.has(RAM):
            return False
        arrival, unheard = self._heard(self._looked)
        seconds, left = self._computing(rows, tokens), arrival.left - unheard
        if not arrival.allows(seconds, left, doubt(self._rates, seconds, max(0.0, left), piece.tier), final=final):
            return False
        if until is None:
            self._left.remove(piece)
        else:
            self._left.trim(piece, until)
        return True

    def _heard(self, looked: float) -> tuple[Expectation, float]:
        """And for how long they have read on meanwhile."""
        arrival = self._arrival(looked)
        return arrival, 0.0 if arrival.overdue else self._clock() - looked

    def _arrival(self, looked: float) -> Expectation:
        reading, all_left = self._left.last(DEPTH), self._left.seconds(self._rates)
        begun = sum(self._rates.load_seconds(one.tier, one.nbytes) for one in reading)
        return expected(self._rates, all_left - begun, reading, looked - self._moved)
