"""How long a step of vLLM takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter

import torch

from ragcache.engine.vllm.orders import Measured
from ragcache.rates import Work

Clock = Callable[[], float]


class StepClock:
    """Of a device whose time nobody can tell: it tells what was measured otherwise."""

    def __init__(self) -> None:
        self._told: list[Measured] = []

    def begin(self) -> None:
        """Of a step, which may end untold."""

    def end(self, work: Work) -> None:
        """Of the one that began last, in which this was done."""

    def add(self, told: Iterable[Measured]) -> None:
        self._told += told

    def take(self) -> list[Measured]:
        """What is known by now, each told once."""
        told, self._told = self._told, []
        return told


class HostClock(StepClock):
    """Where a step has ended when its call returns."""

    def __init__(self, clock: Clock = perf_counter) -> None:
        super().__init__()
        self._clock, self._began = clock, 0.0

    def begin(self) -> None:
        self._began = self._clock()

    def end(self, work: Work) -> None:
        self._told.append(Measured(work, self._clock() - self._began))


class DeviceClock(StepClock):
    """Where a step has only been handed to a device by then: nobody waits for it, it is told with a later one."""

    def __init__(self, mark: Callable[[], torch.cuda.Event]) -> None:
        """`mark`: a place in what the device has been given to do."""
        super().__init__()
        self._mark = mark
        self._began: torch.cuda.Event | None = None
        self._handed = deque[tuple[Work, torch.cuda.Event, torch.cuda.Event]]()

    def begin(self) -> None:
        self._began = self._mark()

    def end(self, work: Work) -> None:
        if self._began is not None:
            self._handed.append((work, self._began, self._mark()))

    def take(self) -> list[Measured]:
        while self._handed and self._handed[0][2].query():
            work, began, ended = self._handed.popleft()
            self._told.append(Measured(work, began.elapsed_time(ended) / 1000.0))
        return super().take()


def step_clock(device: torch.device) -> StepClock:
    if device.type == "cpu":
        return HostClock()
    return DeviceClock(_marked) if device.type == "cuda" else StepClock()


def _marked() -> torch.cuda.Event:
    mark = torch.cuda.Event(enable_timing=True)
    mark.record()
    return mark
