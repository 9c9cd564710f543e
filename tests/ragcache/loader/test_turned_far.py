"""What turned out to be far, and is given up on its way there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from ragcache.errors import StoreError
from ragcache.loader.errands import FEWEST
from ragcache.loader.threads import DiskThreads
from ragcache.store.nearness import AT, Beyond
from tests.waiting import wait_until

LIMIT = 5.0


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def threads(now: list[float]) -> Iterator[DiskThreads]:
    made = DiskThreads(1, "test", LIMIT, lambda: now[0])
    yield made
    made.close()


def test_what_turned_out_far_and_nobody_waits_for_goes_nowhere(threads: DiskThreads) -> None:
    """It stands in line for a network that is slow, and others behind it."""
    gate, went = threading.Event(), list[int]()

    def left(number: int) -> None:
        if AT.disk:
            raise Beyond
        went.append(number)
        gate.wait()

    asked = [threads.submit(partial(left, number)) for number in range(20)]
    wait_until(lambda: all(one.far for one in asked) and len(went) == FEWEST, 60, lambda: str(went))
    for one in asked:
        threads.give_up(one)
    gate.set()
    for one in asked:  # two threads take them, so the last may end after what was asked for behind it
        assert one.future.exception(60) is None or isinstance(one.future.exception(), StoreError)
    assert len(went) == FEWEST
    assert threads.submit(lambda: True, far=True).future.result(60)


def test_who_gives_up_at_the_first_that_is_far_holds_back_no_disk(
    threads: DiskThreads, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two threads: it is on its way to those of the network, which nobody has made yet."""
    made, coming, goes = threads._beyond, threading.Event(), threading.Event()

    def beyond() -> DiskThreads:
        coming.set()
        goes.wait(60)
        return made()

    monkeypatch.setattr(threads, "_beyond", beyond)
    task = threads.submit(raise_beyond)
    assert coming.wait(60)
    threads.give_up(task)
    goes.set()
    assert isinstance(task.future.exception(60), StoreError)
    now[0] = LIMIT + 0.1
    assert threads.submit(lambda: True).future.result(60)


def raise_beyond() -> None:
    assert AT.disk, "nobody waits for it"
    raise Beyond
