from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import torch

from ragcache.engine import resources as module
from ragcache.engine.resources import CoreUsage, FreeCores, read_usage
from ragcache.engine.torch.engine import TorchEngine
from ragcache.host import allowed
from tests.tiny import Tiny

SECOND = 1.0


@dataclass
class Machine:
    """Of four cores, on which others and we compute."""

    others: float = 0.0
    own: float = 0.0
    now: float = 0.0
    _usage: CoreUsage = field(default_factory=lambda: CoreUsage(1000.0, 50.0))

    def run(self, seconds: float) -> None:
        self.now += seconds
        busy, own = (self.others + self.own) * seconds, self.own * seconds
        self._usage = CoreUsage(self._usage.busy + busy, self._usage.own + own)

    def free(self) -> FreeCores:
        return FreeCores(lambda: self._usage, lambda: self.now)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "allowed", lambda: {0, 1, 2, 3})


@pytest.mark.parametrize(
    ("others", "own", "threads"),
    [
        (0.0, 0.0, 4),
        (0.0, 4.0, 4),
        (0.2, 3.8, 4),
        (1.0, 3.0, 3),
        (0.5, 3.5, 3),
        (2.0, 2.0, 2),
        (3.9, 0.1, 1),
        (4.0, 0.0, 1),
    ],
)
def test_cores_that_others_use_are_left_to_them(others: float, own: float, threads: int) -> None:
    machine = Machine(others, own)
    free = machine.free()
    machine.run(SECOND)
    assert free.threads(4) == threads
    assert free.threads(2) == min(2, threads)


def test_others_that_begin_and_end_are_noticed() -> None:
    machine = Machine()
    free = machine.free()
    seen = []
    for machine.others in (0.0, 4.0, 4.0, 0.0, 0.0):
        machine.run(SECOND)
        seen.append(free.threads(4))
    assert seen == [4, 1, 1, 4, 4]


def test_two_looks_right_after_each_other_see_the_same() -> None:
    machine = Machine(others=2.0)
    free = machine.free()
    machine.run(SECOND)
    assert free.threads(4) == 2
    machine.others = 0.0
    machine.run(module.WINDOW_S / 2)
    assert free.threads(4) == 2
    machine.run(module.WINDOW_S)
    assert free.threads(4) > 2


def test_a_system_that_does_not_tell_leaves_all_of_them() -> None:
    moments = iter(range(10))
    free = FreeCores(lambda: None, lambda: float(next(moments)))
    assert [free.threads(3) for _ in range(3)] == [3, 3, 3]


def test_what_is_lent_comes_back() -> None:
    machine, before = Machine(others=3.0), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        free = machine.free()
        machine.run(SECOND)
        with free.lent():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("chosen", "threads"), [(None, 4), (2, 2)])
def test_a_thread_that_begins_while_others_lend_has_its_own_number(chosen: int | None, threads: int) -> None:
    machine, before = Machine(others=3.0), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        free = machine.free()
        machine.run(SECOND)
        with ThreadPoolExecutor(1) as pool:
            with free.lent():
                assert pool.submit(torch.get_num_threads).result() == 1
            if chosen is not None:
                pool.submit(torch.set_num_threads, chosen).result()
            machine.others = 0.0
            machine.run(SECOND)
            assert pool.submit(numbers, free).result() == [threads, threads]
    finally:
        torch.set_num_threads(before)


def numbers(free: FreeCores) -> list[int]:
    """While they are lent, and afterwards."""
    with free.lent():
        inside = torch.get_num_threads()
    return [inside, torch.get_num_threads()]


def test_a_forward_uses_what_is_free(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    engine: TorchEngine = tiny.engine
    monkeypatch.setattr(engine._cores, "threads", lambda most: 1)
    forward = type(engine.decoder).forward
    monkeypatch.setattr(
        type(engine.decoder),
        "forward",
        lambda *args, **kwargs: (seen.append(torch.get_num_threads()), forward(*args, **kwargs))[1],
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        engine.compute([1, 2, 3], [0, 1, 2], engine.buffer(3))
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


@pytest.mark.slow
def test_the_system_tells_what_another_process_uses() -> None:
    """A process that computes for a second is a second of the others, however the machine shares its cores."""
    before = read_usage()
    assert before is not None
    code = "import time\nwhile time.process_time() < 1: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    after = read_usage()
    assert after is not None
    assert (after.busy - before.busy) - (after.own - before.own) >= 0.9
    assert after.own - before.own < 0.9
    assert len(allowed()) <= (os.cpu_count() or 1)
