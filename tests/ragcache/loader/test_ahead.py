"""Prompts that wait for their engine are read meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from functools import partial
from pathlib import Path

import pytest

from benchmarks.caches import prefill_prompt
from benchmarks.cake.conditions import QueuedLoader
from ragcache.linkage import Linkage
from ragcache.linking import make_linker
from ragcache.loader import Delivery, Loading, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.met import MetLoading, _Read
from ragcache.loader.threads import DiskThreads
from ragcache.planning import first_address, plan_prompt
from ragcache.rates import Rates
from ragcache.store import open_store
from ragcache.store.base import KVStore
from tests.cold_prompts import ALL, LIMIT_S, Gate, assert_is_stock, ingested, met, over, prompt
from tests.loaders import known_rates
from tests.tiny import Tiny
from tests.waiting import wait_until


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    made = DiskThreads(1, "test-ahead", LIMIT_S)
    yield made
    made.close()


@pytest.fixture
def store(tiny: Tiny, tmp_path: Path) -> KVStore:
    return ingested(tiny, tmp_path)


def pieces_of(tiny: Tiny, store: KVStore) -> Sequence[SegmentPiece]:
    plan, name = plan_prompt(prompt(), tiny.engine.spec.fingerprint, store), tiny.engine.spec.fingerprint
    return Linkage(plan, make_linker("naive"), first_address(plan, name)).pieces()


def slow_disk() -> Rates:
    """From which nothing comes in the time in which all is computed."""
    return known_rates(1e-6, 1.0)


@pytest.mark.parametrize("waited", [False, True])
def test_time_to_wait_is_time_to_read(tiny: Tiny, store: KVStore, threads: DiskThreads, waited: bool) -> None:
    gate = Gate(1000 if waited else 0)
    queued = QueuedLoader(CakeLoader(threads, pace=gate))
    pieces = pieces_of(tiny, store)
    if waited:
        queued.arrived(pieces, store, slow_disk())
        wait_until(lambda: gate.reads == len(pieces), LIMIT_S)
        threads.submit(lambda: None).future.result(LIMIT_S)  # behind the last of them
    try:
        made = prefill_prompt(over(tiny, store, queued, slow_disk()), prompt(), "naive")
    finally:
        gate.opened.set()
    assert waited == (met(made) == 0)
    assert_is_stock(made, tiny)


def test_what_is_in_memory_is_not_read(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    cold = ingested(tiny, tmp_path)
    store = open_store(tmp_path, codec="raw")
    pieces = pieces_of(tiny, cold)
    for piece in pieces[::2]:
        assert store.get(piece.keys[0]) is not None  # and from now on memory has it
    gate = Gate(1000)
    loading = CakeLoader(threads, pace=gate, claims=False).ahead(pieces, store)
    wait_until(lambda: gate.reads == len(pieces[1::2]), LIMIT_S)
    found = {one.piece.index: one.loaded.tier for one in loading.deliveries() if one.loaded is not None}
    assert found == {piece.index: "disk" if place % 2 else "ram" for place, piece in enumerate(pieces)}
    assert gate.reads == len(pieces[1::2])


def test_the_disk_does_not_wait_for_what_is_in_memory(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    """Which may be placed piece by piece, between steps of others."""
    cold = ingested(tiny, tmp_path)
    store, pieces, gate = open_store(tmp_path, codec="raw"), pieces_of(tiny, cold), Gate(1000)
    for piece in pieces[1:]:
        assert store.get(piece.keys[0]) is not None
    loading = CakeLoader(threads, pace=gate, claims=False).begin(pieces, store)
    wait_until(lambda: gate.reads == 1, LIMIT_S)
    assert len([one for one in loading.deliveries() if one.loaded is not None]) == len(pieces)


def test_all_who_wait_have_one_turn(tiny: Tiny, store: KVStore, threads: DiskThreads) -> None:
    """Whoever is to go on shares the disk with them as with one."""
    gate, pieces, read = Gate(0), pieces_of(tiny, store), list[str]()

    def pace(whose: str, nbytes: int) -> None:
        read.append(whose)
        gate(nbytes)

    early, at_once = (
        CakeLoader(threads, pace=partial(pace, whose), ahead=2 * ALL, claims=False) for whose in ("waits", "taken")
    )
    waiting = [early.ahead(pieces, store) for _ in range(3)]
    taken = at_once.begin(pieces, store)
    gate.opened.set()
    list(taken.deliveries())
    for one in waiting:
        one.stop()
    until = len(read) - read[::-1].index("taken")
    assert read.count("taken") == len(pieces)
    assert read[:until].count("waits") <= len(pieces) + 2, "a turn of theirs for each, and what had begun"


def test_who_is_taken_up_has_a_turn_of_his_own(
    tiny: Tiny, store: KVStore, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He shares the disk with all those who still wait as with one."""
    gate, pieces, read, bring = Gate(0), pieces_of(tiny, store), list[object](), MetLoading._bring

    def noted(meeting: MetLoading, one: _Read) -> Delivery:
        read.append(meeting)
        return bring(meeting, one)

    monkeypatch.setattr(MetLoading, "_bring", noted)
    loader = CakeLoader(threads, pace=gate, ahead=2 * ALL, claims=False)
    first, *others = [loader.ahead(pieces, store) for _ in range(8)]
    assert first.take() is None
    gate.opened.set()
    list(first.deliveries())
    for one in others:
        one.stop()
    until = len(read) - read[::-1].index(first)
    assert read[:until].count(first) == len(pieces)
    assert until <= 2 * len(pieces) + 2


def test_no_more_is_read_than_may_lie_there(
    tiny: Tiny, store: KVStore, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = pieces_of(tiny, store)
    monkeypatch.setattr("ragcache.loader.met.AHEAD_BYTES", sum(piece.nbytes for piece in pieces[-3:]))
    gate = Gate(1000)
    loading = CakeLoader(threads, pace=gate).ahead(pieces, store, slow_disk())
    while awaited := [one for one in loading.awaited if not one.done()]:
        wait(awaited)
    wait_until(lambda: gate.reads == 3, LIMIT_S)
    threads.submit(lambda: None).future.result(LIMIT_S)
    assert gate.reads == 3
    loading.stop()
    assert loading.ended


def test_layers_wait_for_their_taker(tiny: Tiny, store: KVStore, threads: DiskThreads) -> None:
    """What comes first depends on what is then computed."""
    begun: Loading | None = LayerwiseLoader(threads).ahead(pieces_of(tiny, store), store)
    assert begun is None
