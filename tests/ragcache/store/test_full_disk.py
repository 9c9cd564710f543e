"""A disk without room allows what it allowed before there was an index, and what makes room above all."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import StoreError
from ragcache.store.folder import CacheFolder
from ragcache.store.layout import FolderLayout
from tests.ragcache.store.folders import VARIANTS, filled, kept, opened, told

LATER = time.time_ns() + 10**15


class Disk:
    """SQLite's commits fail as on a full one, as long as nothing of the folder goes that gives room."""

    def __init__(self, root: Path) -> None:
        self.root, self.held = root, -1

    def fill(self) -> None:
        self.held = self.used()

    def used(self) -> int:
        return sum(path.stat().st_size for path in (self.root / "index.reserve", *self.root.glob("*/*/*/*.kv")))

    def full(self) -> bool:
        return self.held >= 0 and self.used() >= self.held


class OnDisk(sqlite3.Connection):
    disk: Disk
    before = 0

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE":
            self.before = self.total_changes
        if sql == "COMMIT" and self.total_changes != self.before and self.disk.full():
            super().execute("ROLLBACK")
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, *values)


@pytest.fixture
def disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(root)
    on_disk = type("OnThisDisk", (OnDisk,), {"disk": disk})
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=on_disk))
    yield disk
    disk.held = -1


@pytest.mark.parametrize("reserve", [True, False])
def test_what_makes_room_is_done(root: Path, disk: Disk, reserve: bool) -> None:
    """Also where nothing is kept for it: what it unlinks is room."""
    store = filled(root, 6)
    (size, *_) = (path.stat().st_size for path in root.glob("*/*/*/*.kv"))
    if not reserve:
        os.truncate(root / "index.reserve", 0)
    disk.fill()
    assert kept(opened(root)) == [0, 1, 2, 3, 4, 5]
    disk.fill()
    assert store.delete(VARIANTS[0].key)
    disk.fill()
    folder = CacheFolder(root)
    first = [item for item in folder.items() if item.address == VARIANTS[1].key.digest]
    assert folder.remove(first, LATER) == first
    disk.fill()
    smaller = opened(root, 3 * size)
    assert smaller.stats()[0].evictions == 1
    assert len(kept(smaller)) == 3
    smaller.check_integrity()


def test_what_takes_room_fails_and_spoils_nothing(root: Path, disk: Disk) -> None:
    store = filled(root)
    os.truncate(root / "index.reserve", 0)
    disk.fill()
    for take in (lambda: store.pin(VARIANTS[0].key), lambda: store.put(VARIANTS[3])):
        with pytest.raises(StoreError, match="disk is full"):
            take()
        assert kept(store) == kept(opened(root)) == [0, 1, 2]
        os.truncate(root / "index.reserve", 0)
    disk.held = -1
    store.put(VARIANTS[3])
    store.check_integrity()


def test_what_is_put_does_not_take_the_reserve(root: Path, disk: Disk) -> None:
    store = filled(root)
    kept_room = (root / "index.reserve").stat().st_size
    assert kept_room > 0
    disk.fill()
    with pytest.raises(StoreError, match="disk is full"):
        store.put(VARIANTS[3])
    assert (root / "index.reserve").stat().st_size == kept_room
    store.pin(VARIANTS[0].key)
    assert told(root, "SELECT digest FROM pins") == [(VARIANTS[0].key.digest,)]
    assert (root / "index.reserve").stat().st_size == kept_room, "as soon as there is room it is kept again"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    looks, files = [0], FolderLayout.files

    def count(layout: FolderLayout, *which: Any) -> Any:
        looks[0] += 1
        return files(layout, *which)

    monkeypatch.setattr(FolderLayout, "files", count)
    return looks


def test_uses_that_cannot_be_written_cost_no_look_at_the_folder(root: Path, disk: Disk, counted: list[int]) -> None:
    store = filled(root)
    os.truncate(root / "index.reserve", 0)
    disk.fill()
    with pytest.raises(StoreError):
        store.pin(VARIANTS[0].key)
    counted[0] = 0
    for _ in range(3):
        store.use(VARIANTS[0].key)
        store.stats()
    assert counted == [0]


def test_room_is_kept_where_the_system_cannot_allocate_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    opened(root)
    assert (root / "index.reserve").stat().st_blocks * 512 >= 1 << 20
