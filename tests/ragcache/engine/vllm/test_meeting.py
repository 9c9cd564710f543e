"""What is computed while the workers load: the scheduler's side decides it, for all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from ragcache.cache import ChunkCache
from ragcache.engine.vllm.budget import Budget
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.meeting import Approach
from ragcache.engine.vllm.orders import Answers, Loaded, Looked, Orders
from ragcache.engine.vllm.requests import KEY
from ragcache.linking import make_linker
from ragcache.loader import SYSTEM as SYSTEM_PIECE
from ragcache.loader import PieceLoaded, SegmentPiece
from ragcache.planning import plan_prompt
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.findings import RAM
from tests.loaders import known_rates
from tests.ragcache.engine.vllm.conftest import DOCUMENT, FREE, QUESTION, SYSTEM, MakeScheduler, Worker, arrive, run
from tests.tiny import Tiny

LOAD_S, ROW_S = 1.0, 0.01  # of a piece, and of a row
NBYTES = 10**6
PROMPT = [SYSTEM, *DOCUMENT, QUESTION]
ENDS = {SYSTEM_PIECE: 7, 0: 27, 1: 58, 2: 76, 3: 101}
PIECES = tuple(SegmentPiece(place, 10 * place, (), tier="disk", nbytes=NBYTES) for place in range(4))
ROWS = np.arange(10)


@dataclass
class Time:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def meeting(time: Time, pieces: tuple[SegmentPiece, ...] = PIECES, computing: float = 0.5) -> Approach:
    """Where a piece comes each second."""
    return Approach(pieces, known_rates(ROW_S, LOAD_S / NBYTES), lambda rows, tokens: computing, time)


def test_nothing_is_claimed_before_a_worker_has_begun(time: Time) -> None:
    made = meeting(time)
    assert not made.claims(PIECES[0], ROWS, 100, final=True)
    made.looked(time.now)
    assert made.claims(PIECES[0], ROWS, 100, final=True)
    assert not made.claims(PIECES[0], ROWS, 100, final=True), "once"


@pytest.mark.parametrize(("computing", "expected"), [(2.9, True), (4.1, False)])
def test_a_slice_takes_less_than_all_that_is_left(time: Time, computing: float, expected: bool) -> None:
    made = meeting(time, computing=computing)
    made.looked(time.now)
    assert made.claims(PIECES[0], ROWS, 100, final=True) is expected


def test_what_came_since_the_workers_looked_is_taken_into_account(time: Time) -> None:
    """They report at the end of a step, and the next but one is planned by then."""
    made = meeting(time, computing=2.0)
    made.looked(time.now)
    time.now += 2.0  # so two of the four have come
    assert not made.claims(PIECES[0], ROWS, 100, final=True)
    made.looked(time.now)
    made.came(PIECES[3])
    made.came(PIECES[2])
    assert not made.claims(PIECES[0], ROWS, 100, final=True)


def test_a_disk_that_stops_is_taken_to_need_as_long_again(time: Time) -> None:
    made = meeting(time, computing=5.3)
    made.looked(time.now)
    time.now += 3.1
    made.looked(time.now)
    assert not made.claims(PIECES[0], ROWS, 100, final=True)
    time.now += 1.4
    made.looked(time.now)
    assert made.claims(PIECES[0], ROWS, 100, final=True)


def test_behind_what_was_linked_only_what_is_overdue_is_given_up(time: Time) -> None:
    made = meeting(time)
    made.looked(time.now)
    assert not made.claims(PIECES[0], ROWS, 100, final=False)
    time.now += 3.1
    made.looked(time.now)
    assert made.claims(PIECES[0], ROWS, 100, final=False)


def test_as_much_is_computed_at_a_time_as_takes_half_of_what_is_left(time: Time) -> None:
    made = meeting(time, computing=1.4)
    assert not made.affords(PIECES[0], ROWS, 100, 10), "no worker has begun"
    made.looked(time.now)
    assert made.affords(PIECES[0], ROWS, 100, 10), "of four seconds"
    slower = meeting(time, computing=2.1)
    slower.looked(time.now)
    assert not slower.affords(PIECES[0], ROWS, 100, 10)
    made.came(PIECES[0])
    assert not made.affords(PIECES[0], ROWS, 100, 10), "it has come"


def test_what_is_in_ram_is_waited_for(time: Time) -> None:
    near = replace(PIECES[1], tier=RAM)
    made = meeting(time, (PIECES[0], near, *PIECES[2:]))
    made.looked(time.now)
    assert not made.claims(PIECES[0], ROWS, 100, final=True)
    made.came(near)
    assert made.claims(PIECES[0], ROWS, 100, final=True)


def test_a_clock_of_another_machine_makes_nothing_overdue(time: Time) -> None:
    made = meeting(time, computing=5.0)
    for _ in range(3):
        made.looked(time.now + 1e6)
        assert not made.claims(PIECES[0], ROWS, 100, final=True)


# -- scheduler ------------------------------------------------------------------------------------------------------


@dataclass
class Reader(Worker):
    """Tells that it looks, and drops what it is told to."""

    loading: list[SegmentPiece] = field(default_factory=list)
    request: str = ""
    time: Time = field(default_factory=Time)
    dropped: list[int] = field(default_factory=list)

    def obey(self, orders: Orders) -> Answers:
        answers = super().obey(orders)
        for load in orders.load:
            self.request, self.loading = load.request, [one for one in load.pieces if one.index in self.slow]
        for drop in orders.drop:
            self.dropped.append(drop.piece)
            self.loading = [piece for piece in self.loading if piece.index != drop.piece]
        if self.loading:
            answers.looked.append(Looked(self.request, self.time.now))
        return answers

    def bring(self, index: int) -> Answers:
        self.loading = [piece for piece in self.loading if piece.index != index]
        return Answers(loaded=[Loaded(self.request, PieceLoaded(index, 0, "disk", NBYTES))])


@pytest.fixture
def stored(tiny: Tiny, tmp_path: Path) -> KVStore:
    """On a disk, each chunk behind all before it."""
    store = open_store(tmp_path, ram_bytes=0, codec="raw")
    cache = ChunkCache(tiny.engine, store, "naive", context_chunks=len(DOCUMENT))
    store.put(cache.system_variant(SYSTEM))
    list(cache.ingest(SYSTEM, DOCUMENT))
    return store


def started(make_scheduler: MakeScheduler, time: Time, ranks: int = 1) -> LinkScheduler:
    scheduler = make_scheduler(link_when="sooner", clock=time, ranks=ranks, step_tokens=1000)
    scheduler.pace.rates = known_rates(compute_s=1e-3, load_s=1e-9)
    assert arrive(scheduler, "a", "naive", segments=PROMPT) == ENDS[3] + len(QUESTION)
    return scheduler


def step(scheduler: LinkScheduler, workers: list[Reader], budget: Budget = FREE) -> None:
    orders, answers = scheduler.step(budget, workers[0].finished), Answers()
    for worker in workers:
        answers = answers.joined(worker.obey(orders))
    scheduler.answered(answers)


def test_all_ranks_compute_what_one_of_them_waits_for(make_scheduler: MakeScheduler, time: Time) -> None:
    """What the quick one has placed is computed over, and what comes late is not counted."""
    scheduler, workers = started(make_scheduler, time, 2), [Reader(time=time), Reader(slow={0, 1, 2}, time=time)]
    step(scheduler, workers)  # both have the System segment and the last chunk
    step(scheduler, workers)
    time.now += 1.0
    step(scheduler, workers)
    step(scheduler, workers)  # nothing has come for a second, so the first chunk is computed
    scheduler.answered(workers[1].bring(0))
    scheduler.answered(workers[1].bring(2))
    time.now += 1.0
    run(scheduler, list(workers), limit=20)
    assert workers[0].computed == workers[1].computed
    assert workers[0].dropped == workers[1].dropped == [0, 1]
    assert workers[0].rows == list(range(ENDS[SYSTEM_PIECE], ENDS[1]))
    told = scheduler.gone("a")
    assert told is not None
    assert [chunk["tier"] for chunk in told[KEY]["chunks"]] == [COMPUTED, COMPUTED, "ram", "ram"]
    scheduler.check_integrity()


@pytest.mark.parametrize("left", [1000, 9])
def test_slices_keep_to_what_the_step_leaves(make_scheduler: MakeScheduler, time: Time, left: int) -> None:
    scheduler, worker = started(make_scheduler, time), Reader(slow={0, 1, 2, 3}, time=time)
    for _ in range(60):
        step(scheduler, [worker], Budget(left, True, 1000))
        time.now += 0.1
    assert worker.finished == ["a"]
    assert worker.rows == list(range(ENDS[SYSTEM_PIECE], ENDS[3])), "ascending, each once"
    pieces = [ENDS[place] - ENDS[place - 1] for place in range(4)]
    assert max(worker.steps) == min(max(pieces), max(left, 16)), "a piece at most"


def test_all_is_linked_that_is_cached_where_that_is_asked_for(make_scheduler: MakeScheduler, time: Time) -> None:
    scheduler, worker = make_scheduler(clock=time), Reader(slow={0}, time=time)
    arrive(scheduler, "a", "naive", segments=PROMPT)
    for _ in range(20):
        step(scheduler, [worker])
        time.now += 1.0
    assert worker.dropped == []
    scheduler.answered(worker.bring(0))
    run(scheduler, [worker])
    assert worker.rows == []


@pytest.mark.parametrize(("known", "linked"), [(0, True), (len(SYSTEM), True), (len(SYSTEM) + 5, False)])
def test_a_disk_slower_than_computing_pays_where_the_two_meet(
    tiny: Tiny, stored: KVStore, make_scheduler: MakeScheduler, known: int, linked: bool
) -> None:
    """Not behind what the prefix cache has of an earlier link: nothing is computed ahead there."""
    plan = plan_prompt(PROMPT, tiny.engine.spec.fingerprint, stored)
    nbytes = sum(chunk.candidates[0].info.nbytes for chunk in plan.chunks)
    pace = make_scheduler(link_when="sooner").pace
    pace.rates = known_rates(compute_s=1e-3, load_s=1.5 * 1e-3 * ENDS[3] / nbytes)
    judged = pace.worthwhile(plan, make_linker("naive"), known, len(SYSTEM))
    assert any(chunk.candidates for chunk in judged.chunks) is linked


def test_a_request_that_goes_amid_its_front_takes_it_along(make_scheduler: MakeScheduler, time: Time) -> None:
    scheduler, worker = started(make_scheduler, time), Reader(slow={0, 1, 2, 3}, time=time)
    for _ in range(4):
        step(scheduler, [worker], Budget(9, True, 1000))
        time.now += 1.0
    assert worker.rows
    scheduler.gone("a")
    done = len(worker.rows)
    run(scheduler, [worker])
    assert len(worker.rows) == done
    assert worker.finished == ["a"]
    scheduler.check_integrity()
