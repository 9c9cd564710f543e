"""Memory of prompts that load: bounded, lent in the order of arrival, and back when nobody needs it."""

from __future__ import annotations

import pytest

from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.orders import Answers, Loaded, Orders
from ragcache.loader import PieceLoaded
from tests.ragcache.engine.vllm.conftest import FREE, PROMPT, TOKEN_BYTES, MakeScheduler, Worker, arrive, run

ROOM = TOKEN_BYTES * sum(len(segment) for segment in PROMPT)
PARKED = 200


class Landlord(Worker):
    """A worker that remembers whose rooms it holds."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit, self.held, self.admitted = limit, set[str](), list[str]()

    def obey(self, orders: Orders) -> Answers:
        self.held -= set(orders.release)
        names = [load.request for load in orders.load]
        self.held |= set(names)
        self.admitted += names
        assert len(self.held) <= self.limit
        answers = super().obey(orders)
        self.held -= set(orders.finish)
        return answers


def park(scheduler: LinkScheduler, linker: str) -> list[str]:
    names = [f"request {number}" for number in range(PARKED)]
    for name in names:
        arrive(scheduler, name, linker)
    return names


@pytest.mark.parametrize("linker", ["naive", "first_tokens:k=4", "auto"])
@pytest.mark.parametrize(("nbytes", "limit"), [(0, 1), (ROOM, 1), (4 * ROOM - 1, 3), (4 * ROOM, 4)])
def test_parked_requests_load_one_after_the_other(
    make_scheduler: MakeScheduler, linker: str, nbytes: int, limit: int
) -> None:
    scheduler, worker = make_scheduler(room_bytes=nbytes), Landlord(limit)
    names = park(scheduler, linker)
    run(scheduler, [worker], limit=10 * PARKED)
    assert worker.admitted == names, "in the order of arrival"
    assert sorted(worker.finished) == sorted(names)
    for name in names:
        scheduler.gone(name)
    scheduler.step(FREE)
    assert scheduler._rooms.nbytes == 0
    scheduler.check_integrity()


@pytest.mark.parametrize("steps", range(4))
def test_aborted_ones_leave_nothing(make_scheduler: MakeScheduler, steps: int) -> None:
    """Those that load, and those that wait."""
    scheduler, worker = make_scheduler(room_bytes=2 * ROOM), Landlord(2)
    names = park(scheduler, "auto")
    for _ in range(steps):
        scheduler.answered(worker.obey(scheduler.step(FREE)))
    for name in names[:-1]:
        scheduler.gone(name)
    run(scheduler, [worker])
    assert worker.admitted[-1] == names[-1], "the one that waited to the end"
    assert sorted(worker.finished) == sorted(names)
    assert scheduler._rooms.nbytes == 0
    scheduler.check_integrity()


def test_whoever_waits_for_a_room_loads_once_there_is_one(make_scheduler: MakeScheduler) -> None:
    """However long the one before it reads: a worker counts the time from when it begins to read."""
    scheduler, worker = make_scheduler(room_bytes=ROOM), Landlord(1)
    worker.slow = {1}
    for name in "ab":
        arrive(scheduler, name, "naive")
    for _ in range(3):
        scheduler.answered(worker.obey(scheduler.step(FREE)))
    assert worker.admitted == ["a"]
    worker.slow.clear()
    scheduler.answered(Answers(loaded=[Loaded("a", PieceLoaded(1, 0, "disk", 1))]))
    run(scheduler, [worker])
    for name in "ab":
        told = scheduler.gone(name)
        assert told is not None
        assert told["ragcache"]["incidents"] == []
