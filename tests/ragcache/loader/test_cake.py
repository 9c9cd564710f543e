"""Compute from the front, load from the back: whatever the two sides' speeds are, and whatever breaks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.linkage import Linkage
from ragcache.linking import make_linker
from ragcache.loader import Loading, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.reading import Pace
from ragcache.loader.threads import DiskThreads, T, Task
from ragcache.planning import first_address, plan_prompt
from ragcache.rates import Rates
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import System
from tests.cold_prompts import (
    ALL,
    DOCUMENT,
    LEAD,
    LIMIT_S,
    QUESTION,
    Gate,
    assert_is_stock,
    cake,
    ingested,
    met,
    over,
    prompt,
)
from tests.loaders import known_rates
from tests.tiny import Tiny, make_chunks, make_system

FEW = 4  # pieces that are read and not placed, on a machine with however many cores


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    """One, so that pieces pass a gate in their order."""
    made = DiskThreads(1, "test-cake", LIMIT_S)
    yield made
    made.close()


class Deferring(CakeLoader):
    """Nothing is claimed until so many reads have begun, however late their threads are: else all may be computed."""

    def __init__(self, threads: DiskThreads, pace: Pace, reads: int):
        begun, numbers = threading.Event(), count(1)

        def counted(nbytes: int) -> None:
            if next(numbers) == reads:
                begun.set()
            pace(nbytes)

        super().__init__(threads, pace=counted)
        self._begun = begun

    def begin(self, *of: Any) -> Loading:
        loading = super().begin(*of)
        claim = loading.claim

        def deferred(piece: SegmentPiece, seconds: float, *, final: bool = True, until: int | None = None) -> bool:
            assert self._begun.wait(LIMIT_S)
            return claim(piece, seconds, final=final, until=until)

        loading.claim = deferred  # type: ignore[method-assign]
        return loading


def test_a_disk_that_gives_nothing_holds_nobody_up(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store, gate = ingested(tiny, tmp_path), Gate(0)
    try:
        made = prefill_prompt(cake(tiny, store, threads, gate), prompt(), "naive")
        assert met(made) == ALL
        assert_is_stock(made, tiny)
        begun = gate.reads
    finally:
        gate.opened.set()
    assert begun <= 2, "two at a time, and none after the prompt was done"


def test_a_last_piece_that_stops_costs_itself_alone(tiny: Tiny, tmp_path: Path) -> None:
    """What came before it is used all the same."""
    threads, end = DiskThreads(2, "test-cake", LIMIT_S), threading.Event()
    pace = partial(strike, {0: 20.0}, iter(range(10**6)), end)
    try:
        # A thread alone reads on: as it begins a fourth, two have come.
        loader = Deferring(threads, pace, 4)
        made = prefill_prompt(over(tiny, ingested(tiny, tmp_path), loader), prompt(), "naive")
    finally:
        end.set()
        threads.close()
    assert sum(chunk.tier == "disk" for chunk in made.report.chunks) > 1
    assert_is_stock(made, tiny)


def test_no_piece_is_lost_where_no_task_can_be_made(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, submit, asked = ingested(tiny, tmp_path), threads.submit, iter(range(10**6))

    def failing(call: Callable[[], T], *more: Any, **named: Any) -> Task[T]:
        if next(asked) in (2, 3):
            raise MemoryError
        return submit(call, *more, **named)

    monkeypatch.setattr(threads, "submit", failing)
    made = prefill_prompt(cake(tiny, store, threads), prompt(), "naive")
    assert any(chunk.tier == COMPUTED for chunk in made.report.chunks)
    assert_is_stock(made, tiny)


def test_a_slow_disk_behind_a_chunk_that_is_linked_at_once_is_left_out(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads
) -> None:
    """Nothing can be computed ahead there, so each chunk is judged by itself."""
    slow = ingested(tiny, tmp_path, context=0)
    both = open_store(tmp_path, codec="raw")
    kept = slow.get(slow.variants(key_of(tiny, slow, 3))[0].key)
    assert kept is not None
    both.put(kept.variant)
    rates = known_rates(compute_s=1e-3, load_s=1e-5)
    segments = [LEAD, DOCUMENT[0], DOCUMENT[3], DOCUMENT[5], DOCUMENT[6], QUESTION]
    made = prefill_prompt(cake(tiny, both, threads, rates=rates), segments, "naive")
    assert [chunk.tier for chunk in made.report.chunks][2:] == [COMPUTED] * 2
    assert made.report.declined


def test_a_child_of_a_fork_has_threads_of_its_own(threads: DiskThreads) -> None:
    assert threads.submit(lambda: 1).future.result(LIMIT_S) == 1
    child = os.fork()
    if not child:
        code = 1  # whatever fails, the child must not go on with the tests
        try:
            code = threads.submit(lambda: 42).future.result(LIMIT_S)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


def test_what_is_sooner_loaded_is_not_computed(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store = ingested(tiny, tmp_path)
    rates = known_rates(compute_s=1.0, load_s=1e-12)
    made = prefill_prompt(cake(tiny, store, threads, rates=rates), prompt(), "naive")
    assert met(made) == 0
    assert_is_stock(made, tiny)


def test_nothing_is_computed_behind_what_was_linked(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    """What is in RAM is there at once; its tokens are not what a prefill's would be, so no front grows over it."""
    store = open_store(tmp_path, codec="raw")
    slow = ingested(tiny, tmp_path, context=0)
    first = next(info for info in slow.variants(key_of(tiny, slow, 3)))
    kept = slow.get(first.key)
    assert kept is not None
    store.put(kept.variant)
    loader = Deferring(threads, Gate(ALL), 2)  # then the last one has come
    made = prefill_prompt(over(tiny, store, loader), prompt(0, 3, 5), "naive")
    assert [chunk.tier for chunk in made.report.chunks][1] == "ram"
    assert made.report.chunks[2].tier == "disk"


def key_of(tiny: Tiny, store: KVStore, place: int) -> str:
    cache = ChunkCache(tiny.engine, store, context_chunks=0)
    return cache.kvgen.capture(cache.system_variant(LEAD), [], DOCUMENT[place]).key.family


def test_a_text_and_a_missing_chunk_in_the_front_are_computed_with_it(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads
) -> None:
    store, (stranger,) = ingested(tiny, tmp_path), make_chunks(23, seed=9)
    gate = Gate(0)
    try:
        segments = [LEAD, DOCUMENT[0], stranger, DOCUMENT[1], DOCUMENT[2], QUESTION]
        made = prefill_prompt(cake(tiny, store, threads, gate), segments, "naive")
    finally:
        gate.opened.set()
    assert met(made) == 4
    assert_is_stock(made, tiny)


def strike(faults: Mapping[int, Exception | float], reads: Iterator[int], end: threading.Event, nbytes: int) -> None:
    """An error, or nothing for so many seconds, before some of the reads."""
    fault = faults.get(next(reads), 0.0)
    if isinstance(fault, Exception):
        raise fault
    end.wait(fault)


def test_a_system_segment_that_does_not_come_is_computed(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store, gate = ingested(tiny, tmp_path), Gate(ALL)
    try:
        made = prefill_prompt(cake(tiny, store, threads, gate), prompt(), "naive")
    finally:
        gate.opened.set()
    assert made.report.system_tier == COMPUTED
    assert_is_stock(made, tiny)


def test_a_system_segment_that_is_soon_there_is_waited_for(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    rates = known_rates(compute_s=1.0, load_s=1e-12)
    made = prefill_prompt(cake(tiny, ingested(tiny, tmp_path), threads, rates=rates), prompt(), "naive")
    assert made.report.system_tier == "disk"
    assert_is_stock(made, tiny)


def test_a_system_segment_that_nobody_has_is_computed(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store = open_store(tmp_path, ram_bytes=0, codec="raw")
    other = System(make_system(5).ids)
    made = prefill_prompt(cake(tiny, store, threads), [other, DOCUMENT[0], QUESTION], "naive")
    assert_is_stock(made, tiny)


@pytest.mark.parametrize(("most", "begun"), [(1 << 40, FEW), (2500, 3), (1, 1)])
def test_no_more_is_read_than_may_wait_to_be_placed(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch, most: int, begun: int
) -> None:
    """However long the engine computes meanwhile; with each that is placed another one is read."""
    monkeypatch.setattr("ragcache.loader.met.AHEAD_BYTES", most)
    store, gate, name = ingested(tiny, tmp_path), Gate(10**6), tiny.engine.spec.fingerprint
    plan = plan_prompt(prompt(), name, store)
    pieces = Linkage(plan, make_linker("naive"), first_address(plan, name)).pieces()
    loading = CakeLoader(threads, pace=gate, ahead=FEW).begin([replace(one, nbytes=1000) for one in pieces], store)

    def settled() -> int:
        for _ in range(FEW):  # each read begins the next one before it ends
            threads.submit(lambda: None).future.result(LIMIT_S)
        return gate.reads

    assert settled() == begun
    assert loading.take() is not None
    assert settled() == begun + 1
    loading.stop()


def test_what_would_come_too_late_is_not_begun(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    """But where nobody computes it after all, it is read."""
    store, gate, name = ingested(tiny, tmp_path), Gate(10**6), tiny.engine.spec.fingerprint
    plan = plan_prompt(prompt(), name, store)
    pieces = Linkage(plan, make_linker("naive"), first_address(plan, name)).pieces()
    loading = CakeLoader(threads, pace=gate).begin(pieces, store, known_rates(compute_s=1e-4, load_s=1e-5))
    threads.submit(lambda: None).future.result(LIMIT_S)
    assert gate.reads == 0
    assert loading.claim(pieces[0], 1e-2)
    found = [one.loaded for one in loading.deliveries() if one.loaded is not None]
    assert len(found) == ALL
    assert {one.tier for one in found} == {"disk"}


def test_who_claims_nothing_is_given_nothing_to_compute(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    """However long the disk takes: whoever plans for such a loader decides that elsewhere."""
    store, name, gate = ingested(tiny, tmp_path), tiny.engine.spec.fingerprint, Gate(0)
    plan = plan_prompt(prompt(), name, store)
    pieces = Linkage(plan, make_linker("naive"), first_address(plan, name)).pieces()
    for claims in (True, False):
        rates = known_rates(compute_s=1e-9, load_s=1.0)
        loading = CakeLoader(threads, pace=gate, claims=claims).begin(pieces, store, rates)
        assert loading.claim(pieces[0], 1e-9) == claims
        loading.stop()
    gate.opened.set()


@pytest.mark.parametrize("off", [0.0, 0.4])
def test_a_slice_that_may_well_end_too_late_is_not_begun(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads, off: float
) -> None:
    """Of two disks that take as long in the mean, it depends on how far off that may be."""
    store, name, source = ingested(tiny, tmp_path), tiny.engine.spec.fingerprint, Random(3)
    plan = plan_prompt(prompt(), name, store)
    pieces = Linkage(plan, make_linker("naive"), first_address(plan, name)).pieces()
    rates = Rates()
    for _ in range(100):
        factor = 1 + source.choice([-off, off])
        for _ in range(4):
            rates.observe_load("disk", 10**6, 10.0 * factor)
    gate = Gate(0)
    loading = CakeLoader(threads, pace=gate, clock=lambda: 0.0).begin(pieces, store, rates)
    left = sum(rates.load_seconds("disk", piece.nbytes) for piece in pieces)
    assert loading.claim(pieces[0], 0.8 * left) == (off == 0.0)
    loading.stop()
    gate.opened.set()
