"""What leaves a disk tier for want of room: when something comes, and when its budget becomes smaller."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ragcache.errors import StoreFull
from ragcache.store.budgets import Leaving
from ragcache.store.disk_room import DiskRoom
from ragcache.store.eviction.base import Evictable
from ragcache.store.eviction.victims import displaced
from ragcache.store.index import Change, Contents, FolderIndex, reporting
from ragcache.store.reuse import ReuseRecord

_AT_ONCE = 256  # files that are evicted in one change: others want to write meanwhile


class TierCounts:
    """What happened in this process since it opened the store. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counter[str]()

    def add(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counts[name] += by

    def told(self) -> list[int]:
        """In the order of TierStats."""
        with self._lock:
            return [self._counts[name] for name in ("hits", "misses", "evictions", "quarantined", "displaced")]


class DiskBudget:
    """Threads share it. The room that is in force is replaced whole."""

    def __init__(self, room: DiskRoom, index: FolderIndex, counts: TierCounts, reuse: ReuseRecord) -> None:
        self._room, self._index, self._counts, self._reuse = room, index, counts, reuse

    @property
    def budget(self) -> int | None:
        return self._room.budget

    def leaving(self, budget: int | None) -> Leaving:
        room = replace(self._room, budget=budget)
        with reporting("read", room.root):
            return Leaving.of(self._index.change(lambda change: room.beyond(change.nbytes, change.loose())))

    def fit(self, budget: int | None) -> Leaving:
        self._room = replace(self._room, budget=budget)
        with reporting("delete from", self._room.root):
            return self.evict()

    def evict(self) -> Leaving:
        """What is beyond the budget that is in force at each step. Raises OSError and sqlite3.Error."""
        gone = Leaving()
        while self._room.beyond_by(self._index.usage()[1]) and (step := self._index.change(self._evict_some)).entries:
            gone += step
        return gone

    def _evict_some(self, change: Change) -> Leaving:
        chosen = self._room.beyond(change.nbytes, change.loose(), _AT_ONCE)
        self._remove(change, chosen, "evictions")
        return Leaving.of(chosen)

    def announce(self, change: Change, contents: Contents, target: Path, lead: Path, temporary: str) -> None:
        """An entry for which there is room, or room is made, also in the place of those of its chunk that it pushes
        out: never of the one at `lead`.
        """
        old = change.entry(contents.key.digest)
        others = (other for other in change.family(contents.key.family) if other.name != str(target))
        leaving = displaced(others, self._room.order, str(lead))
        freed = sum(one.nbytes for one in leaving) + (old.nbytes if old else 0)
        spared = {str(target), *(one.name for one in leaving)}
        loose = (one for one in change.loose() if one.name not in spared)
        chosen, why = self._room.choose(change.nbytes, contents.nbytes - freed, loose)
        if why:
            raise StoreFull(f"a cache file of {contents.nbytes:,} bytes {why}")
        self._remove(change, chosen, "evictions")
        self._remove(change, leaving, "displaced")
        for one in leaving:
            self._reuse.forget(Path(one.name).stem)
        change.announce(contents, temporary)

    def _remove(self, change: Change, chosen: Iterable[Evictable], name: str) -> None:
        self._counts.add(name, sum(change.remove(Path(one.name)) for one in chosen))
