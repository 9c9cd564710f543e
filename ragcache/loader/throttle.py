"""A disk of a given speed, for tests and benchmarks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from math import inf
from time import perf_counter, sleep


@dataclass(frozen=True)
class Shares:
    """Shares of full speed, one after the other, and again from the first."""

    steps: Sequence[tuple[float, float]] = ((inf, 1.0),)  # how many seconds, and the share

    def __post_init__(self) -> None:
        assert any(seconds > 0 and share > 0 for seconds, share in self.steps), "nothing would ever end"

    @classmethod
    def steady(cls, share: float) -> Shares:
        return cls(((inf, share),))

    def after(self, moment: float, seconds: float) -> float:
        """When what takes so many seconds at full speed is done, if it begins at this moment."""
        begin = 0.0
        for length, share in cycle(self.steps):
            end = begin + length
            if moment < end:
                if share > 0 and moment + seconds / share <= end:
                    return moment + seconds / share
                seconds -= (end - moment) * share
                moment = end
            begin = end
        raise AssertionError("a cycle has no end")

    @property
    def mean(self) -> float:
        whole = sum(seconds for seconds, _ in self.steps)
        return self.steps[0][1] if whole == inf else sum(seconds * share for seconds, share in self.steps) / whole


class Throttle:
    """What all who read share: each waits until its bytes have come at so many a second. A loader's `pace`."""

    def __init__(self, bytes_per_s: float, schedule: Shares | None = None):
        """`schedule`: of which share of that there is when, from now on or from `restart`."""
        self.bytes_per_s = bytes_per_s  # may change while they read
        self._schedule = schedule or Shares()
        self._lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Nothing has been asked for, and the schedule begins."""
        with self._lock:
            self._began = perf_counter()
            self._free = 0.0  # since then: when all that was asked for has come

    def __call__(self, nbytes: int) -> None:
        with self._lock:
            now = perf_counter() - self._began
            self._free = self._schedule.after(max(self._free, now), nbytes / self.bytes_per_s)
            until = self._began + self._free
        sleep(max(0.0, until - perf_counter()))
