"""As many threads for a computation as cores are free, while other programs compute too.

OpenMP cuts each of a forward's hundreds of operations into equal parts, one for each thread, and waits for the last.
With as many threads as cores, and others busy on these, some thread always waits for its turn: an answer then takes
ten times as long and more, where fewer threads lose no more than their own share (docs/log.md).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import torch

STAT = Path("/proc/stat")
WINDOW_S = 0.25  # between two looks: the system counts in hundredths of a second
SLACK = 0.3  # of a core that others may use before it counts as taken


@dataclass(frozen=True)
class CoreUsage:
    """Seconds of the cores that this process may run on, since the machine started."""

    busy: float
    own: float  # of this process, all of its threads together


class FreeCores:
    """Threads may share it. Where the system does not tell who computes, all cores are free."""

    def __init__(self, usage: Callable[[], CoreUsage | None] | None = None, clock: Callable[[], float] = monotonic):
        self._usage = usage or read_usage
        self._clock = clock
        self._lock = threading.Lock()
        self._last, self._since = self._usage(), clock()
        self._allowed = len(allowed())
        self._most = torch.get_num_threads()
        self._lent: set[int] = set()  # numbers, ever
        self._met = threading.local()
        self._others = 0.0  # cores that other programs used, of late

    def threads(self, most: int) -> int:
        """That a computation which could use `most` of them should use now."""
        with self._lock:
            now = self._clock()
            if now - self._since >= WINDOW_S:
                usage = self._usage()
                if usage is not None and self._last is not None:
                    others = (usage.busy - self._last.busy) - (usage.own - self._last.own)
                    self._others = max(0.0, others / (now - self._since))
                self._last, self._since = usage, now
                self._allowed = len(allowed())
            return max(1, min(most, int(max(most, self._allowed) - self._others + SLACK)))

    @contextmanager
    def lent(self) -> Iterator[None]:
        """What this thread computes with torch inside uses the free ones."""
        before = torch.get_num_threads()
        own = self._own(before)
        wanted = self.threads(own)
        if wanted == own == before:
            yield
            return
        self._lent.add(wanted)
        torch.set_num_threads(wanted)
        try:
            yield
        finally:
            torch.set_num_threads(own)

    def _own(self, told: int) -> int:
        """Threads that this one computes with by itself, where torch told so many. To one that first computed while
        another was lent fewer, torch tells those for as long as it lives.
        """
        first, self._met.ever = not hasattr(self._met, "ever"), True
        return max(told, self._most) if first and told in self._lent else told


def allowed() -> set[int]:
    """Cores of all threads of this process together: OpenMP may have bound each of them to one of its own."""
    if not hasattr(os, "sched_getaffinity"):
        return set(range(os.cpu_count() or 1))
    found = set(os.sched_getaffinity(0))
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # it has ended
                found |= os.sched_getaffinity(int(thread.name))
    return found


def read_usage() -> CoreUsage | None:
    """As Linux counts it; None elsewhere."""
    try:
        lines = [line.split() for line in STAT.read_text("ascii").splitlines() if line.startswith("cpu")]
        own = {f"cpu{number}" for number in allowed()}
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return None
    # user nice system idle iowait irq softirq steal: what a hypervisor takes is taken by others too.
    busy = sum(int(value) for name, *values in lines if name in own for value in (*values[:3], *values[5:8]))
    times = os.times()
    return CoreUsage(busy / ticks, times.user + times.system)
