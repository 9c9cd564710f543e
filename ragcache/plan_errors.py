"""How far first tokens come from when they were planned, and what all of them take beside the work of plans."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Any

from ragcache.loads import LONGEST, is_within

PLANS, FEWEST = 64, 8  # that are remembered; that tell how far off they are
DOUBT = 8  # plans that the last run's time beside the work stands for, or that of none


class PlanErrors:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self._off = deque[float](maxlen=PLANS)  # as a share of what it took
        self._late = deque[float](maxlen=PLANS)  # seconds beyond what the work was to take
        self._known = 0.0

    def observe(self, planned: float, seconds: float) -> None:
        """`planned`: with what was `beside` the work by then, which is about what it is now."""
        if planned > 0.0 and seconds > 0.0:
            self._off.append(abs(planned / seconds - 1.0))
            self._late.append(seconds - planned + self.beside)

    @property
    def beside(self) -> float:
        """Seconds of a first token that no work tells of: its sampling, the engine's steps around it, its way."""
        late = median(self._late) if self._late else 0.0
        return max(0.0, (len(self._late) * late + DOUBT * self._known) / (len(self._late) + DOUBT))

    @property
    def error(self) -> float | None:
        """The median of how far plans of late were off; None after too few."""
        return median(self._off) if len(self._off) >= FEWEST else None

    def take_up(self, beside: Any) -> None:
        """What the last run has left, or anybody wrote."""
        if is_within(beside, LONGEST):
            self._known = float(beside)
