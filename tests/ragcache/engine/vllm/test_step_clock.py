"""What steps take, on a device that runs behind: its events are not here, so others stand for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ragcache.engine.vllm.orders import Measured
from ragcache.engine.vllm.step_clock import DeviceClock, HostClock, StepClock, step_clock
from ragcache.rates import Work

ONE, TWO = Work(passes=1, rows=1), Work(passes=1, rows=200)


class Device:
    """It comes to what it was given when it is told to, in milliseconds."""

    def __init__(self) -> None:
        self.now: list[float] = []

    def mark(self) -> Any:
        self.now.append(float("nan"))
        return Place(self, len(self.now) - 1)

    def comes(self, *times: float) -> None:
        left = [place for place, when in enumerate(self.now) if when != when]
        for place, when in zip(left, times, strict=False):
            self.now[place] = when


class Place:
    def __init__(self, device: Device, number: int) -> None:
        self._device, self._number = device, number

    @property
    def when(self) -> float:
        return self._device.now[self._number]

    def query(self) -> bool:
        return self.when == self.when

    def elapsed_time(self, end: Place) -> float:
        assert self.query() and end.query(), "asked of what has not been"
        return end.when - self.when


def test_a_step_is_told_once_its_device_has_come_to_its_end() -> None:
    device = Device()
    clock = DeviceClock(device.mark)
    clock.begin()
    clock.end(ONE)
    assert clock.take() == [], "handed over, and nobody waits"
    clock.begin()
    clock.end(TWO)
    device.comes(3.0, 5.0)
    assert clock.take() == [Measured(ONE, 0.002)]
    device.comes(5.0, 25.0)
    assert clock.take() == [Measured(TWO, 0.02)]
    assert clock.take() == [], "each once"


def test_a_step_that_nobody_ends_is_not_told() -> None:
    device = Device()
    clock = DeviceClock(device.mark)
    clock.begin()  # it waited for a file
    clock.begin()
    clock.end(ONE)
    device.comes(1.0, 10.0, 11.0)
    assert clock.take() == [Measured(ONE, 0.001)]


def test_a_step_of_a_processor_has_ended_with_its_call() -> None:
    times = iter((10.0, 10.5, 20.0, 20.25))
    clock = HostClock(lambda: next(times))
    for work in (ONE, TWO):
        clock.begin()
        clock.end(work)
    assert clock.take() == [Measured(ONE, 0.5), Measured(TWO, 0.25)]
    assert clock.take() == []


@pytest.mark.parametrize(("device", "kind"), [("cpu", HostClock), ("cuda", DeviceClock), ("xpu", StepClock)])
def test_each_device_has_its_own(device: str, kind: type[StepClock]) -> None:
    clock = step_clock(torch.device(device))
    assert type(clock) is kind
    clock.add([Measured(ONE, 0.1)])
    assert clock.take() == [Measured(ONE, 0.1)], "what was measured before any step"


def test_where_nobody_can_tell_nothing_is_told() -> None:
    clock = StepClock()
    clock.begin()
    clock.end(ONE)
    assert clock.take() == []
