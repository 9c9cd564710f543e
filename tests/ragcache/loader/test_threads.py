from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from ragcache.errors import StoreError
from ragcache.loader.errands import FEWEST
from ragcache.loader.threads import DiskThreads, Task
from ragcache.store.nearness import AT, Beyond
from tests.waiting import wait_until

LIMIT = 5.0


class Disk:
    """Answers a task when its gate opens; time passes when the test says so."""

    def __init__(self, count: int = 1):
        self.now = 0.0
        self.threads = DiskThreads(count, "test", LIMIT, lambda: self.now)
        self.gates: list[threading.Event] = []

    def ask(self) -> tuple[Task[object], threading.Event, threading.Event]:
        """The task, what says that a thread took it up, and its gate."""
        begun, gate = threading.Event(), threading.Event()
        self.gates.append(gate)
        return self.threads.submit(lambda: (begun.set(), gate.wait())), begun, gate


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    for gate in made.gates:
        gate.set()
    made.threads.close()


def test_time_counts_from_when_a_thread_takes_it_up(disk: Disk) -> None:
    first, begun, gate = disk.ask()
    assert begun.wait(60)
    waiting, taken, _ = disk.ask()
    disk.now = LIMIT
    assert not disk.threads.late(first)
    gate.set()
    assert taken.wait(60)
    disk.now = 2 * LIMIT
    assert not disk.threads.late(waiting), "it waited for the first, which is no sign of a bad disk"
    disk.now = 2 * LIMIT + 0.1
    assert disk.threads.late(waiting)


def test_what_is_of_a_network_holds_up_nothing_of_the_disk(disk: Disk) -> None:
    """However many wait for it: and while they are late, the disk is asked all the same."""
    gate = threading.Event()
    disk.gates.append(gate)
    far = [disk.threads.submit(gate.wait, far=True) for _ in range(20)]
    wait_until(lambda: sum(one.begun is not None for one in far) == FEWEST, 60, lambda: far)
    task, begun, _ = disk.ask()
    assert begun.wait(60)
    disk.now = LIMIT + 0.1
    assert disk.threads.late(far[0])
    for one in far:
        disk.threads.give_up(one)
    refused = disk.threads.submit(gate.wait, far=True)
    assert isinstance(refused.future.exception(60), StoreError)
    disk.gates[-1].set()
    task.future.result(60)
    near, begun, _ = disk.ask()
    assert begun.wait(60)
    assert not disk.threads.late(near)


def test_what_turns_out_to_be_far_goes_on_beside_the_disk(disk: Disk) -> None:
    """Its time counts anew; and it ends where they are closed."""
    gate = threading.Event()
    disk.gates.append(gate)

    def looks() -> bool:
        if AT.disk:
            raise Beyond
        return gate.wait()

    asked = [disk.threads.submit(looks) for _ in range(20)]
    near, begun, _ = disk.ask()
    assert begun.wait(60), "the disk's one thread is free"
    wait_until(lambda: asked[0].begun is not None, 60, lambda: asked[0])
    assert not asked[0].future.done()
    assert asked[0].far
    disk.gates[1].set()
    near.future.result(60)
    closing = threading.Thread(target=disk.threads.close)
    closing.start()
    assert isinstance(asked[-1].future.exception(60), StoreError)
    gate.set()
    closing.join()
    assert asked[0].future.result(60) is True


FORKED = """
import os, sys, threading
from ragcache.loader.threads import DiskThreads

threads = DiskThreads(2, "test", 60.0)
for far in (False, True):
    threads.submit(int, far=far).future.result(60)
held = [threads._errands, threads._far._errands]
ready, over = threading.Barrier(3), threading.Event()

def hold(errands):
    with errands._change:
        ready.wait()
        over.wait()

for errands in held:
    threading.Thread(target=hold, args=(errands,), daemon=True).start()
ready.wait()
if child := os.fork():
    _, status = os.waitpid(child, 0)
    over.set()
    sys.exit(status != 0)
print([threads.submit(lambda: 7, far=far).future.result(60) for far in (False, True)], flush=True)
os._exit(0)
"""


def test_a_child_of_a_fork_takes_no_lock_of_its_parents_threads() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ran.returncode, ran.stdout) == (0, "[7, 7]\n"), ran.stderr


def test_what_no_thread_comes_to_is_late_when_nothing_moves(disk: Disk) -> None:
    first, begun, _ = disk.ask()
    assert begun.wait(60)
    waiting, _, _ = disk.ask()
    disk.now = LIMIT + 0.1
    assert disk.threads.late(first)
    assert disk.threads.late(waiting)


def at_work(disk: Disk, seconds: float, expected: int) -> bool:
    """Whether just so many are, of eight that are asked for and each take so long."""
    asked = [disk.ask() for _ in range(8)]
    there = all(begun.wait(60) for _, begun, _ in asked[:expected])
    more = expected < len(asked) and asked[expected][1].wait(0.2)
    for task, _, _ in asked[expected:]:  # whose order would be a race
        task.future.cancel()
    disk.now += seconds
    for _, _, gate in asked:
        gate.set()
    for task, _, _ in asked[:expected]:
        task.future.result()
    return there and not more


def test_a_disk_is_shared_by_as_many_as_it_serves_well_within_the_limit() -> None:
    disk = Disk(8)
    assert at_work(disk, 0.01, 2), "nothing is known of it yet"
    assert at_work(disk, 0.01, 8)
    assert at_work(disk, 6.4, 8)
    assert at_work(disk, 1.2, 2), "with the disk for itself each had taken .8 s, and a share of the limit is 1.25"
    assert at_work(disk, 1.2, 2), "it was .6 then, and what was slow is not forgotten at once"
    assert [at_work(disk, 0.01, expected) for expected in (2, 2, 3, 4, 6, 8)] == [True] * 6
    disk.threads.close()


def test_what_was_given_up_keeps_nothing_when_it_comes(disk: Disk) -> None:
    task, begun, gate = disk.ask()
    assert begun.wait(60)
    disk.threads.give_up(task)
    kept = weakref.ref(task)
    del task
    assert kept() is not None
    gate.set()
    wait_until(lambda: kept() is None, 60)


def test_a_disk_that_hangs_is_asked_no_more_until_it_answers(disk: Disk) -> None:
    first, begun, gate = disk.ask()
    assert begun.wait(60)
    disk.threads.give_up(first)
    disk.now = LIMIT + 0.1
    refused, _, _ = disk.ask()
    with pytest.raises(StoreError, match="not answered for 5 s"):
        refused.future.result()
    gate.set()
    first.future.result()
    _, begun, _ = disk.ask()
    assert begun.wait(60)


def test_a_thread_that_hangs_does_not_keep_the_others_from_being_idle(disk: Disk) -> None:
    first, begun, gate = disk.ask()
    assert begun.wait(60) and not disk.threads.idle
    disk.threads.give_up(first)
    assert not disk.threads.idle, "it may come in a moment"
    disk.now = LIMIT + 0.1
    assert disk.threads.idle
    gate.set()
    first.future.result()
    wait_until(lambda: disk.threads.idle, 60)
    _, begun, _ = disk.ask()
    assert begun.wait(60) and not disk.threads.idle


def test_what_was_given_up_early_is_no_sign_of_a_bad_disk(disk: Disk) -> None:
    first, begun, gate = disk.ask()
    assert begun.wait(60)
    disk.now = LIMIT
    disk.threads.give_up(first)
    waiting, taken, _ = disk.ask()
    gate.set()
    assert taken.wait(60)
    assert not waiting.future.done()


def test_a_program_that_ends_asks_nothing_more(disk: Disk) -> None:
    disk.threads.close()
    task, _, _ = disk.ask()
    with pytest.raises(StoreError, match="the engine ends"):
        task.future.result()


def test_what_waits_when_they_are_closed_is_cancelled(disk: Disk) -> None:
    _, begun, gate = disk.ask()
    assert begun.wait(60)
    waiting, _, _ = disk.ask()
    closing = threading.Thread(target=disk.threads.close)
    closing.start()
    wait_until(waiting.future.cancelled, 60)
    gate.set()
    closing.join()


HANGING = """
import threading
from ragcache.loader import sequential as disk_threads

disk_threads.CLOSING_S = 0.0
threads, begun = disk_threads.DiskThreads(2, "read", 5.0), threading.Event()
threads.submit(lambda: (begun.set(), threading.Event().wait()))
assert begun.wait(60)
threads.close()
"""


def test_a_disk_that_never_answers_does_not_keep_the_program() -> None:
    ran = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=100, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_clients_have_their_turns(disk: Disk) -> None:
    _, begun, gate = disk.ask()
    assert begun.wait(60)
    first, second, third, order = object(), object(), object(), list[str]()
    asked = [(first, "a1"), (first, "a2"), (first, "a3"), (second, "b1"), (third, "c1"), (second, "b2")]
    tasks = [disk.threads.submit(partial(order.append, name), client) for client, name in asked]
    gate.set()
    for task in tasks:
        task.future.result(60)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


@pytest.fixture
def cores() -> Iterator[int]:
    """That threads compute with, more than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_what_they_decode_they_decode_alone(disk: Disk, cores: int) -> None:
    assert disk.threads.submit(torch.get_num_threads).future.result(60) == 1
    with ThreadPoolExecutor(1) as another:
        assert another.submit(torch.get_num_threads).result() == cores
    assert torch.get_num_threads() == cores
