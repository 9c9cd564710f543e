"""A disk of a given speed, for tests and benchmarks."""

from __future__ import annotations

import threading
from time import perf_counter, sleep


class Throttle:
    """What all who read share: each waits until its bytes have come at so many a second. A loader's `pace`."""

    def __init__(self, bytes_per_s: float):
        self.bytes_per_s = bytes_per_s  # may change while they read
        self._lock = threading.Lock()
        self._free = 0.0  # when all that was asked for has come

    def __call__(self, nbytes: int) -> None:
        with self._lock:
            self._free = until = max(self._free, perf_counter()) + nbytes / self.bytes_per_s
        sleep(max(0.0, until - perf_counter()))
