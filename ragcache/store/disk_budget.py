"""What leaves a disk tier for want of room: when something comes, and when its budget becomes smaller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ragcache.errors import StoreFull
from ragcache.host import BriefLock
from ragcache.store.budgets import Leaving
from ragcache.store.disk_room import DiskRoom
from ragcache.store.eviction.base import Evictable
from ragcache.store.eviction.lowest import LowestFirst
from ragcache.store.eviction.victims import Lesser, displaced
from ragcache.store.index import Change, Contents, FolderIndex, reporting
from ragcache.store.layout import KV, FolderLayout
from ragcache.store.reuse import ReuseRecord
from ragcache.types import VariantKey

_AT_ONCE = 256  # files that are evicted in one change: others want to write meanwhile


def digest_at(name: str) -> str:
    """Of the path of an entry."""
    return name.rpartition("/")[2].removesuffix(KV)


class TierCounts:
    """What happened in this process since it opened the store. Threads share it."""

    def __init__(self) -> None:
        self._lock = BriefLock()
        self._counts = Counter[str]()

    def add(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counts[name] += by

    def told(self) -> list[int]:
        """In the order of TierStats."""
        with self._lock:
            return [
                self._counts[name] for name in ("hits", "misses", "evictions", "quarantined", "displaced", "declined")
            ]


@dataclass(frozen=True)
class _Weighed:
    """What taking an entry in would mean."""

    declined: bool  # what would go for it is worth more
    why: str  # there is no room for it; "" where there is
    chosen: list[Evictable]  # what goes for its bytes
    leaving: list[Evictable]  # what goes for it of its own chunk


class DiskBudget:
    """Threads share it. The room that is in force is replaced whole."""

    def __init__(
        self, room: DiskRoom, layout: FolderLayout, index: FolderIndex, counts: TierCounts, reuse: ReuseRecord
    ) -> None:
        self._room, self._layout, self._index, self._counts, self._reuse = room, layout, index, counts, reuse
        self._lowest = LowestFirst(room.order)

    @property
    def budget(self) -> int | None:
        return self._room.budget

    def leaving(self, budget: int | None) -> Leaving:
        room = replace(self._room, budget=budget)
        with reporting("read", room.root):
            return Leaving.of(self._index.change(lambda change: room.beyond(change.nbytes, self._lowest_first(change))))

    def fit(self, budget: int | None) -> Leaving:
        self._room = replace(self._room, budget=budget)
        with reporting("delete from", self._room.root):
            return self.evict()

    def has_room(self, nbytes: int) -> bool:
        """On the disk too, of which some stays free."""
        with reporting("read", self._room.root):
            return not self._room.excess(self._index.usage()[1], nbytes)[0]

    def evict(self) -> Leaving:
        """What is beyond the budget that is in force at each step. Raises OSError and sqlite3.Error."""
        gone = Leaving()
        while self._room.beyond_by(self._index.usage()[1]) and (step := self._index.change(self._evict_some)).entries:
            gone += step
        return gone

    def _evict_some(self, change: Change) -> Leaving:
        chosen = self._room.beyond(change.nbytes, self._lowest_first(change), _AT_ONCE)
        self._remove(change, chosen, "evictions")
        return Leaving.of(chosen)

    def declines(self, key: VariantKey, nbytes: int) -> bool:
        """Whether an entry of at least so many bytes, that is put and judged, would not be taken in: so that it is not
        encoded and written first.
        """
        if not self._room.order.judges or self.has_room(nbytes):
            return False
        with reporting("read", self._room.root):
            declined = self._index.change(
                lambda change: self._weighed(change, key, nbytes, judges=True).declined, reserve=False
            )
        self._counts.add("declined", int(declined))
        return declined

    def announce(self, change: Change, contents: Contents, temporary: str, *, judges: bool = False) -> bool:
        """An entry for which there is room, or room is made. `judges`: not where that would take what is worth more;
        says whether.
        """
        found = self._weighed(change, contents.key, contents.nbytes, judges=judges)
        if found.declined:
            self._counts.add("declined")
            return False
        if found.why:
            raise StoreFull(f"a cache file of {contents.nbytes:,} bytes {found.why}")
        self._remove(change, found.chosen, "evictions")
        self._remove(change, found.leaving, "displaced")
        for one in found.leaving:
            self._reuse.forget(digest_at(one.name))
        change.announce(contents, temporary)
        return True

    def _weighed(self, change: Change, key: VariantKey, nbytes: int, *, judges: bool) -> _Weighed:
        """What would go for an entry, also those of its chunk that it pushes out: never the one without context."""
        old, target, lead = change.entry(key.digest), str(self._layout.entry(key)), str(self._layout.entry(key.lead))
        others = (self._judged(other) for other in change.family(key.family) if other.name != target)
        leaving = displaced(others, self._room.order, lead, self._room.variants)
        freed = sum(one.nbytes for one in leaving) + (old.nbytes if old else 0)
        spared = {target, *(one.name for one in leaving)}
        loose = (one for one in self._lowest_first(change) if one.name not in spared)
        new = None
        if judges and old is None:
            new = self._judged(Evictable(target, nbytes, time.time_ns(), change.is_pinned(key.digest)))
        lesser = Lesser(loose, new, self._room.order)
        chosen, why = self._room.choose(change.nbytes, nbytes - freed, lesser)
        fits = self._room.budget is None or nbytes <= self._room.budget
        return _Weighed(lesser.ended and fits, why, chosen, leaving)

    def _lowest_first(self, change: Change) -> Iterable[Evictable]:
        """All that may go, the first to go first."""

        def now(name: str) -> Evictable | None:
            found = change.entry(digest_at(name))
            return None if found is None else self._judged(found)

        return self._lowest.of(lambda: map(self._judged, change.loose()), now)

    def _judged(self, one: Evictable) -> Evictable:
        """With its uses, as far as the order goes by them."""
        if not self._room.order.counts_uses:
            return one
        age_s = max(0.0, (time.time_ns() - one.used) / 1e9)
        return replace(one, uses=self._reuse.fading.of_folder(digest_at(one.name), one.uses.count, age_s))

    def _remove(self, change: Change, chosen: Iterable[Evictable], name: str) -> None:
        self._counts.add(name, sum(change.remove(Path(one.name)) for one in chosen))
