"""A disk that answers nobody: it is not asked for one piece after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ragcache.errors import StoreError
from ragcache.loader import Loader, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.sequential import LATE, LATE_ONES, SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.store.findings import BUCKET
from ragcache.store.nearness import AT, Beyond
from ragcache.types import VariantKey
from tests.loaders import known_rates
from tests.waiting import wait_until

LIMIT_S = 0.05
MIB = 1 << 20


class StuckStore:
    """Of a disk that has these entries, and never gives the others."""

    def __init__(self, good: set[int], ended: threading.Event):
        self._good, self._ended = good, ended
        self.asked: list[int] = []

    def open(self, key: VariantKey, *_: Any) -> Any:
        place = int(key.chunk, 16)
        self.asked.append(place)
        if place not in self._good:
            self._ended.wait()
        return None

    bring = open
    memory = None

    def at_hand(self, key: VariantKey) -> None:
        return None


def pieces(count: int, nbytes: int) -> list[SegmentPiece]:
    keys = [VariantKey("f" * 64, "s" * 64, (), f"{place:064x}") for place in range(count)]
    return [
        SegmentPiece(place, 1000 * place, (key,), tier="disk", nbytes=nbytes, tokens=1000)
        for place, key in enumerate(keys)
    ]


@pytest.mark.parametrize("readers", [2, 8])
@pytest.mark.parametrize("mib", [32, 100, 300])
@pytest.mark.parametrize("kind", ["sequential", "cake"])
def test_the_rest_of_a_prompt_is_not_waited_for(kind: str, mib: int, readers: int) -> None:
    ended = threading.Event()
    store, threads = StuckStore(set(), ended), DiskThreads(readers, "stuck", LIMIT_S)
    loader: Loader = SequentialLoader(threads) if kind == "sequential" else CakeLoader(threads, claims=False)
    told = list(loader.begin(pieces(20, mib * MIB), store).deliveries())  # type: ignore[arg-type]
    assert sorted(one.piece.index for one in told) == list(range(20))
    assert all(one.loaded and one.loaded.incidents for one in told)
    at_once = min(readers, -(-256 // mib))  # that are asked for before any is late
    assert len(store.asked) < at_once + LATE_ONES
    ended.set()
    loader.close()


@pytest.mark.parametrize("kind", ["sequential", "cake"])
def test_one_bad_file_costs_no_other(kind: str) -> None:
    ended = threading.Event()
    bad = 7
    store, told = StuckStore(set(range(20)) - {bad}, ended), dict[int, tuple[str, ...]]()
    # Time passes when all others have been handed over.
    threads = DiskThreads(2, "stuck", LIMIT_S, lambda: float(len(told) >= 19))
    loader: Loader = SequentialLoader(threads) if kind == "sequential" else CakeLoader(threads, claims=False)
    for one in loader.begin(pieces(20, 100 * MIB), store).deliveries():  # type: ignore[arg-type]
        assert one.loaded
        told[one.piece.index] = tuple(one.loaded.incidents)
    assert [index for index, incidents in told.items() if LATE in incidents] == [bad]
    assert sorted(store.asked) == list(range(20))
    ended.set()
    loader.close()


@pytest.mark.parametrize("kind", ["sequential", "cake", "layers"])
def test_a_bucket_that_hangs_costs_no_piece_of_the_disk(kind: str) -> None:
    """However many of the last ones, which are read first, lie there."""
    ended = threading.Event()
    near, far = set(range(6)), set(range(6, 10))
    store, told = StuckStore(near, ended), dict[int, tuple[str, ...]]()
    # Time passes when all that the disk has has been handed over, and with each of the others.
    threads = DiskThreads(2, "stuck", LIMIT_S, lambda: float(max(0, len(told) - len(near) + 1)))
    loaders: dict[str, Loader] = {
        "sequential": SequentialLoader(threads),
        "cake": CakeLoader(threads, claims=False),
        "layers": LayerwiseLoader(threads),
    }
    asked = [replace(one, tier="bucket" if one.index in far else "disk") for one in pieces(10, MIB)]
    for one in loaders[kind].begin(asked, store).deliveries():  # type: ignore[arg-type]
        assert one.loaded
        told[one.piece.index] = tuple(one.loaded.incidents)
    assert {index for index, incidents in told.items() if incidents} == far
    assert near <= set(store.asked)
    ended.set()
    loaders[kind].close()


@pytest.mark.parametrize("made", [CakeLoader, LayerwiseLoader])
def test_a_bucket_that_answers_nobody_holds_up_nothing_of_the_disk(made: Callable[[DiskThreads], Loader]) -> None:
    """Though its pieces stand at the back of the prompt, where reading begins."""
    ended, near = threading.Event(), set(range(6))
    store, threads = StuckStore(near, ended), DiskThreads(2, "stuck", 60.0)
    asked = [replace(one, tier="disk" if one.index in near else BUCKET) for one in pieces(20, MIB)]
    loading, came = made(threads).begin(asked, store), set[int]()  # type: ignore[arg-type]

    def comes() -> bool:
        while (found := loading.take()) is not None:
            came.add(found.piece.index)
        return came == near

    wait_until(comes, 60, lambda: (came, store.asked))
    loading.stop()
    ended.set()
    threads.close()


class LeftStore(StuckStore):
    """Of a bucket that answers nobody, and a disk that these entries have left since they were planned."""

    def open(self, key: VariantKey, *_: Any) -> Any:
        if AT.disk:
            raise Beyond
        return super().open(key)

    bring = open


def test_what_has_left_the_disk_is_computed_where_that_is_sooner() -> None:
    """As what is slow there is: whoever computes is not kept waiting by a bucket."""
    ended, now = threading.Event(), [0.0]
    store, threads = LeftStore(set(), ended), DiskThreads(2, "stuck", 60.0, lambda: now[0])
    rates = known_rates(compute_s=1e-3, load_s=1e-9)
    (piece,) = asked = pieces(1, MIB)
    loading = CakeLoader(threads, clock=lambda: now[0]).begin(asked, store, rates)  # type: ignore[arg-type]
    wait_until(lambda: bool(store.asked), 60, lambda: store.asked)
    assert loading.take() is None
    assert not loading.claim(piece, 1.0, final=True)
    now[0] = 5.0
    assert loading.claim(piece, 1.0, final=True)
    assert loading.ended
    ended.set()
    threads.close()


def test_what_nobody_waits_for_any_more_goes_nowhere() -> None:
    """Nor does it count against the disk, which has answered."""
    begun, gate, threads = threading.Event(), threading.Event(), DiskThreads(1, "stuck", 60.0)

    def looks() -> None:
        begun.set()
        gate.wait()
        raise Beyond

    task = threads.submit(looks)
    assert begun.wait(60)
    threads.give_up(task)
    gate.set()
    assert isinstance(task.future.exception(60), StoreError)
    assert not task.far
    threads.close()
