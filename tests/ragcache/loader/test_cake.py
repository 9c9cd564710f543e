"""Compute from the front, load from the back: whatever the two sides' speeds are, and whatever breaks."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.torch.generation import Prefilled
from ragcache.errors import StoreError
from ragcache.loader.cake import CakeLoader
from ragcache.loader.reading import Pace
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads, T, Task
from ragcache.policy import Rates
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment, System
from tests.loaders import known_rates
from tests.tiny import Tiny, assert_close, make_chunks, make_question, make_system, stock

LEAD, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 31, 18, 25, 22, 14, 27, 19)
LIMIT_S = 20.0
ALL = len(DOCUMENT)


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    """One, so that pieces pass a gate in their order."""
    made = DiskThreads(1, "test-cake", LIMIT_S)
    yield made
    made.close()


def ingested(tiny: Tiny, folder: Path, context: int = ALL) -> KVStore:
    store = open_store(folder, 0, None, "raw")
    cache = ChunkCache(tiny.engine, store, context_chunks=context)
    store.put(cache.system_variant(LEAD))
    assert len(list(cache.ingest(LEAD, DOCUMENT))) == ALL
    return store


def prompt(*places: int) -> list[Segment]:
    return [LEAD, *(DOCUMENT[place] for place in places or range(ALL)), QUESTION]


def met(made: Prefilled) -> int:
    """So many leading chunks were computed."""
    tiers = [chunk.tier for chunk in made.report.chunks]
    front = tiers.count(COMPUTED)
    assert tiers == [COMPUTED] * front + ["disk"] * (len(tiers) - front)
    return front


class Gate:
    """A pace that lets so many pieces through, and no more until it is opened."""

    def __init__(self, count: int):
        self._left, self._lock = count, threading.Lock()
        self.opened = threading.Event()
        self.reads = 0

    def __call__(self, nbytes: int) -> None:
        with self._lock:
            self._left, self.reads = self._left - 1, self.reads + 1
            waits = self._left < 0
        if waits:
            self.opened.wait(LIMIT_S)


@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5", "auto:ratio=0.2", "cacheblend:ratio=0.3"])
@pytest.mark.parametrize("places", [tuple(range(ALL)), (3, 0, 5, 1, 7)])
def test_every_meeting_point_is_that_of_the_plain_loader(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads, linker: str, places: tuple[int, ...]
) -> None:
    store, segments, compared = ingested(tiny, tmp_path, context=3), prompt(*places), 0
    for loaded in range(len(places) + 1):
        gate = Gate(1 + loaded)  # the System segment's is one
        try:
            made = prefill_prompt(cake(tiny, store, threads, gate), segments, linker)
        finally:
            gate.opened.set()
        if made.report.system_tier == COMPUTED:  # a busy machine read it so late; its bits are not the stored ones
            continue
        compared, front = compared + 1, met(made)
        plain = SequentialLoader(front=front)
        expected = prefill_prompt(
            ChunkCache(tiny.engine, store, context_chunks=3, keep_missed=False, loader=plain), segments, linker
        )
        end = len(made.plan.ids)
        assert torch.equal(made.logits, expected.logits)
        assert torch.equal(made.buffer.k[:, :, :end], expected.buffer.k[:, :, :end])
        assert torch.equal(made.buffer.v[:, :, :end], expected.buffer.v[:, :, :end])
        assert made.report.chunks == expected.report.chunks
        assert made.report.repaired == expected.report.repaired
    assert compared, "or this shows nothing"


def cake(
    tiny: Tiny, store: KVStore, threads: DiskThreads, pace: Pace | None = None, rates: Rates | None = None
) -> ChunkCache:
    loader = CakeLoader(threads, pace=pace)
    return ChunkCache(tiny.engine, store, context_chunks=ALL, keep_missed=False, loader=loader, rates=rates)


def test_a_disk_that_gives_nothing_holds_nobody_up(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store, gate = ingested(tiny, tmp_path), Gate(1)
    try:
        made = prefill_prompt(cake(tiny, store, threads, gate), prompt(), "naive")
        assert met(made) == ALL
        assert_is_stock(made, tiny)
        begun = gate.reads
    finally:
        gate.opened.set()
    assert begun <= 1 + 2, "two at a time, and none after the prompt was done"


def assert_is_stock(made: Prefilled, tiny: Tiny) -> None:
    ids, expected = made.plan.ids, stock(tiny.model, made.plan.ids)
    assert_close(made.buffer.k[:, :, : len(ids)], expected.k)
    assert_close(made.buffer.v[:, :, : len(ids)], expected.v)
    assert_close(made.logits, expected.logits[-1])


def test_a_last_piece_that_stops_costs_itself_alone(tiny: Tiny, tmp_path: Path) -> None:
    """What came before it is used all the same."""
    threads, end = DiskThreads(2, "test-cake", LIMIT_S), threading.Event()
    pace = partial(strike, {1: 20.0}, iter(range(10**6)), end)  # the System segment's read is the first
    try:
        made = prefill_prompt(cake(tiny, ingested(tiny, tmp_path), threads, pace), prompt(), "naive")
    finally:
        end.set()
        threads.close()
    assert sum(chunk.tier == "disk" for chunk in made.report.chunks) > 1
    assert_is_stock(made, tiny)


def test_no_piece_is_lost_where_no_task_can_be_made(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, submit, asked = ingested(tiny, tmp_path), threads.submit, iter(range(10**6))

    def failing(call: Callable[[], T]) -> Task[T]:
        if next(asked) in (2, 3):
            raise MemoryError
        return submit(call)

    monkeypatch.setattr(threads, "submit", failing)
    made = prefill_prompt(cake(tiny, store, threads), prompt(), "naive")
    assert any(chunk.tier == COMPUTED for chunk in made.report.chunks)
    assert_is_stock(made, tiny)


def test_a_slow_disk_behind_a_chunk_that_is_linked_at_once_is_left_out(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads
) -> None:
    """Nothing can be computed ahead there, so each chunk is judged by itself."""
    slow = ingested(tiny, tmp_path, context=0)
    both = open_store(tmp_path, None, None, "raw")
    kept = slow.get(slow.variants(key_of(tiny, slow, 3))[0].key)
    assert kept is not None
    both.put(kept.variant)
    rates = known_rates(compute_s=1e-3, load_s=1e-3)
    segments = [LEAD, DOCUMENT[0], DOCUMENT[3], DOCUMENT[5], DOCUMENT[6], QUESTION]
    made = prefill_prompt(cake(tiny, both, threads, rates=rates), segments, "naive")
    assert [chunk.tier for chunk in made.report.chunks][2:] == [COMPUTED] * 2
    assert made.report.declined


def test_a_child_of_a_fork_has_threads_of_its_own(threads: DiskThreads) -> None:
    assert threads.submit(lambda: 1).future.result(LIMIT_S) == 1
    child = os.fork()
    if not child:
        os._exit(threads.submit(lambda: 42).future.result(LIMIT_S))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


def test_what_is_sooner_loaded_is_not_computed(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store = ingested(tiny, tmp_path)
    rates = known_rates(compute_s=1.0, load_s=1e-12)
    made = prefill_prompt(cake(tiny, store, threads, rates=rates), prompt(), "naive")
    assert met(made) == 0
    assert_is_stock(made, tiny)


def test_nothing_is_computed_behind_what_was_linked(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    """What is in RAM is there at once; its tokens are not what a prefill's would be, so no front grows over it."""
    store = open_store(tmp_path, None, None, "raw")
    slow = ingested(tiny, tmp_path, context=0)
    first = next(info for info in slow.variants(key_of(tiny, slow, 3)))
    kept = slow.get(first.key)
    assert kept is not None
    store.put(kept.variant)
    gate = Gate(ALL)
    made = prefill_prompt(cake(tiny, store, threads, gate), prompt(0, 3, 5), "naive")
    assert [chunk.tier for chunk in made.report.chunks][1] == "ram"
    assert made.report.chunks[2].tier == "disk"


def key_of(tiny: Tiny, store: KVStore, place: int) -> str:
    cache = ChunkCache(tiny.engine, store, context_chunks=0)
    return cache.kvgen.capture(cache.system_variant(LEAD), [], DOCUMENT[place]).key.family


def test_a_text_and_a_missing_chunk_in_the_front_are_computed_with_it(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads
) -> None:
    store, (stranger,) = ingested(tiny, tmp_path), make_chunks(23, seed=9)
    gate = Gate(1)
    try:
        segments = [LEAD, DOCUMENT[0], stranger, DOCUMENT[1], DOCUMENT[2], QUESTION]
        made = prefill_prompt(cake(tiny, store, threads, gate), segments, "naive")
    finally:
        gate.opened.set()
    assert met(made) == 4
    assert_is_stock(made, tiny)


FAULTS: tuple[Exception | float, ...] = (
    StoreError("the disk failed"),
    OSError("short read"),
    MemoryError(),
    0.005,
    20.0,
)


def strike(faults: Mapping[int, Exception | float], reads: Iterator[int], end: threading.Event, nbytes: int) -> None:
    """An error, or nothing for so many seconds, before some of the reads."""
    fault = faults.get(next(reads), 0.0)
    if isinstance(fault, Exception):
        raise fault
    end.wait(fault)


def test_random_faults_leave_the_answer_as_it_is(tiny: Tiny, tmp_path: Path) -> None:
    """The chunks are exact, so whatever was computed or loaded is what a plain prefill holds."""
    threads = DiskThreads(2, "test-cake", LIMIT_S)
    store, source, points = ingested(tiny, tmp_path), random.Random(17), set[int]()
    expected = stock(tiny.model, tuple(token for one in prompt() for token in one.ids)).logits[-1]
    for _ in range(60):
        end = threading.Event()
        faults = {number: source.choice(FAULTS) for number in source.sample(range(1, 1 + ALL), source.randrange(5))}
        reads = iter(range(10**6))

        pace = partial(strike, faults, reads, end)

        try:
            made = prefill_prompt(cake(tiny, store, threads, pace), prompt(), "naive")
        finally:
            end.set()
        assert_close(made.logits, expected)
        points.add(sum(chunk.tier == COMPUTED for chunk in made.report.chunks))
    assert len(points) > 3, points
    threads.close()
    store.check_integrity()


def test_a_system_segment_that_does_not_come_is_computed(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store, gate = ingested(tiny, tmp_path), Gate(0)
    try:
        made = prefill_prompt(cake(tiny, store, threads, gate), prompt(), "naive")
    finally:
        gate.opened.set()
    assert (made.report.system_tier, met(made)) == (COMPUTED, ALL)
    assert_is_stock(made, tiny)


def test_a_system_segment_that_is_soon_there_is_waited_for(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    rates = known_rates(compute_s=1.0, load_s=1e-12)
    made = prefill_prompt(cake(tiny, ingested(tiny, tmp_path), threads, rates=rates), prompt(), "naive")
    assert made.report.system_tier == "disk"
    assert_is_stock(made, tiny)


def test_a_system_segment_that_nobody_has_is_computed(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store = open_store(tmp_path, 0, None, "raw")
    other = System(make_system(5).ids)
    made = prefill_prompt(cake(tiny, store, threads), [other, DOCUMENT[0], QUESTION], "naive")
    assert_is_stock(made, tiny)
