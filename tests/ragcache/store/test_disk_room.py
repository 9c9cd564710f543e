"""What a disk tier takes of a disk that others fill too, and what one does that evicts nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import StoreFull
from ragcache.store import DiskTier, KVStore, open_store
from ragcache.store.eviction.lru import LRU

FLOOR = 1 << 20


class Disk:
    """Of a fixed size, with what lies in a folder, and what others put beside it."""

    def __init__(self, root: Path, size: int):
        self.root, self.size, self.others = root, size, 0

    def free(self, folder: Path) -> int:
        there = [*self.root.glob("*/*/*/*.kv"), *self.root.glob("writing/*")]
        return self.size - self.others - sum(path.stat().st_size for path in there)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(root, FLOOR + 20_000)
    monkeypatch.setattr("ragcache.store.disk_room.free_bytes", disk.free)
    return disk


def put(store: KVStore, make: Callable[..., Any], numbers: range) -> list[Any]:
    made = [make(tuple(range(number, number + 40)), context=()) for number in numbers]
    for one in made:
        store.put(one)
    return made


def test_a_tier_grows_up_to_the_floor_and_no_further(root: Path, disk: Disk, make_variant: Any) -> None:
    store = DiskTier(root, None, "raw", floor=FLOOR)
    put(store, make_variant, range(3))
    assert store.stats()[0].evictions == 0
    *_, newest = put(store, make_variant, range(3, 20))
    (stats,) = store.stats()
    assert stats.evictions and stats.entries + stats.evictions == 20
    assert disk.free(root) >= FLOOR and store.get(newest.key) is not None
    store.check_integrity()


def test_what_others_put_on_the_disk_costs_no_more_than_what_is_new(root: Path, disk: Disk, make_variant: Any) -> None:
    store = DiskTier(root, None, "raw", floor=FLOOR)
    put(store, make_variant, range(3))
    disk.others = FLOOR
    put(store, make_variant, range(3, 4))
    (stats,) = store.stats()
    assert (stats.entries, stats.evictions) == (3, 1)


def test_with_nothing_to_take_the_place_of_it_is_refused(root: Path, disk: Disk, make_variant: Any) -> None:
    store = DiskTier(root, None, "raw", floor=FLOOR)
    disk.others = 20_000
    with pytest.raises(StoreFull, match="free some space"):
        put(store, make_variant, range(1))
    assert store.stats()[0].entries == 0 and not list(root.rglob("*.kv*"))


@pytest.mark.parametrize("budget", [None, 1 << 30])
def test_what_is_freed_meanwhile_is_not_blamed(
    root: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch, budget: int | None
) -> None:
    """The disk is looked at once: what it said then is the reason."""
    store, free = DiskTier(root, budget, "raw", LRU, floor=FLOOR), [FLOOR - 1, 1 << 40]
    monkeypatch.setattr("ragcache.store.disk_room.free_bytes", lambda _: free.pop(0))
    with pytest.raises(StoreFull, match=r"a cache file of .* has no room on the disk .* 1,048,575 are free"):
        put(store, make_variant, range(1))
    assert free == [1 << 40]


@pytest.mark.parametrize("evicts", [True, False])
def test_one_that_does_not_evict_refuses(root: Path, make_variant: Any, evicts: bool) -> None:
    (first,) = put(DiskTier(root, None, "raw"), make_variant, range(1))
    nbytes = sum(path.stat().st_size for path in root.rglob("*.kv"))
    store = open_store(root, ram_bytes=0, disk_bytes=nbytes + 10, codec="raw", evicts=evicts)
    if evicts:
        put(store, make_variant, range(1, 2))
    else:
        with pytest.raises(StoreFull, match="raise the budget or delete some"):
            put(store, make_variant, range(1, 2))
    assert (store.get(first.key) is None) is evicts
    store.check_integrity()


def test_one_that_does_not_evict_opens_over_its_budget(root: Path, make_variant: Any) -> None:
    put(DiskTier(root, None, "raw"), make_variant, range(3))
    (stats,) = DiskTier(root, 10, "raw", evicts=False).stats()
    assert stats.entries == 3


def test_a_full_disk_is_told_as_that(root: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskTier(root, None, "raw")
    put(store, make_variant, range(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.replace", full)
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreFull, match="No space left on device"):
        put(store, make_variant, range(1, 2))
    monkeypatch.undo()
    assert store.stats()[0].entries == 1
    store.check_integrity()
