"""What a child of a fork has from its parent, whatever other threads were at."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ragcache import host
from ragcache.host import BriefLock, carry_over
from ragcache.kvgen import Refused
from ragcache.prefix_keeping import Recurrence
from ragcache.rates import Rates, Work
from ragcache.store.disk_budget import TierCounts
from ragcache.store.fading import FadingUses
from ragcache.store.frame import InfoCache
from ragcache.store.ram import RamTier
from ragcache.store.reuse import ReuseRecord

USES: dict[Callable[[], Any], Callable[[Any], object]] = {
    lambda: RamTier(None): lambda tier: tier.stats(),
    InfoCache: lambda infos: infos.get("name", 1),
    TierCounts: lambda counts: counts.told(),
    FadingUses: lambda uses: uses.of("name"),
    ReuseRecord: lambda record: record.hit_rate(None),
    Rates: lambda rates: rates.seconds(Work(rows=1.0)),
    Recurrence: lambda recurrence: recurrence.check_integrity(),
    Refused: lambda refused: refused.skips("name"),
}


def status_of(child: Callable[[], bool]) -> int:
    """0 where it was so."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        os._exit(0 if child() else 2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("made", USES, ids=["ram", "infos", "counts", "fading", "reuse", "rates", "recent", "refused"])
def test_a_fork_waits_for_whoever_changes_what_the_child_will_use(made: Callable[[], Any]) -> None:
    one = made()
    begun, ended = threading.Event(), threading.Event()

    def change() -> None:
        with one._lock:
            begun.set()
            time.sleep(0.2)  # what it takes
            ended.set()

    thread = threading.Thread(target=change)
    thread.start()
    assert begun.wait(60)

    def child() -> bool:
        USES[made](one)
        return ended.is_set()

    assert status_of(child) == 0
    thread.join()
    USES[made](one)


def test_a_fork_stands_in_the_way_of_none_who_has_one_lock_and_wants_another() -> None:
    """In either order."""
    locks = [BriefLock() for _ in range(8)]
    over = threading.Event()

    def nested(order: list[BriefLock]) -> None:
        while not over.is_set():
            for outer, inner in pairwise(order):
                with outer, inner:
                    pass

    threads = [threading.Thread(target=nested, args=(part,)) for part in (locks[:4], locks[:3:-1])]
    for thread in threads:
        thread.start()

    def child() -> bool:
        for lock in locks:
            with lock:
                pass
        return True

    assert [status_of(child) for _ in range(20)] == [0] * 20
    over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_who_never_lets_go_of_a_lock_holds_no_fork_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragcache.host.FORK_S", 0.05)
    lock = BriefLock()
    assert lock.take(0.0)

    def child() -> bool:
        with lock:
            return True

    assert status_of(child) == 0
    assert not lock.take(0.0), "its parent has it still"
    lock.free()


def test_a_fork_that_is_interrupted_before_leaves_nothing_locked() -> None:
    """By the user, while it waits: what comes behind a fork is done all the same."""
    told = Told()
    carry_over(told)
    host._forks()._in_parent()
    assert told.times == 1
    with BriefLock():
        pass
    assert status_of(lambda: True) == 0


class Told:
    times = 0

    def before_fork(self) -> None:
        pass

    def after_fork(self) -> None:
        self.times += 1

    def after_fork_in_child(self) -> None:
        pass
