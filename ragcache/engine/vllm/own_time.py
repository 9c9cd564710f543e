"""What our own code takes of vLLM's threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import Concatenate, ParamSpec, Protocol, TypeVar

LEAST_S = 0.001  # that is told: less waits for more, so that not every step has something to tell
Clock = Callable[[], float]


class OwnTime:
    """Of one side of the connector, on one thread: all but what places, computes or waits for something to do."""

    def __init__(self, clock: Clock = perf_counter) -> None:
        self.clock = clock
        self._seconds = 0.0

    def counts(self, since: float) -> None:
        self._seconds += self.clock() - since

    def without(self, since: float) -> float:
        """What began then was none of it -> its seconds."""
        seconds = self.clock() - since
        self._seconds -= seconds
        return seconds

    def idle(self, wait: Callable[[], object]) -> None:
        """Until something is there that it needs."""
        started = self.clock()
        wait()
        self.without(started)

    def take(self) -> float:
        """Since it was last taken; 0 while that is little."""
        if self._seconds < LEAST_S:
            return 0.0
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class Side(Protocol):
    """Of the connector."""

    @property
    def own(self) -> OwnTime: ...


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Side)


class Steps:
    """vLLM's, as its scheduler sees them: until their outcome is there, each from the end of the one before where it
    goes on with what that had; else from when somebody asked. What lies between, while nothing is asked, is none.
    """

    def __init__(self, clock: Clock = perf_counter) -> None:
        self._clock = clock
        self._under_way, self._since, self._seconds = 0, 0.0, 0.0
        self._asked: float | None = None  # the last time since a step was ordered

    def asked(self) -> None:
        self._asked = self._clock()  # who asked before may have gone without a step

    def ordered(self, *, goes_on: bool) -> None:
        """Perhaps before the one before it has ended."""
        if not (self._under_way or goes_on):
            self._since = self._clock() if self._asked is None else max(self._since, self._asked)
        self._asked = None
        self._under_way += 1

    def ended(self) -> None:
        if self._under_way:
            now = self._clock()
            self._seconds, self._since = self._seconds + now - self._since, now
            self._under_way -= 1

    def take(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def counted(hook: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Its time is our own. It calls no other that is counted."""

    @wraps(hook)
    def timed(side: S, /, *given: P.args, **named: P.kwargs) -> R:
        started = side.own.clock()
        try:
            return hook(side, *given, **named)
        finally:
            side.own.counts(started)

    return timed
