"""How much of a disk its tier may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from ragcache.host import free_bytes
from ragcache.store.eviction.base import Evictable, EvictionOrder
from ragcache.store.eviction.victims import first_of, victims

Floor: TypeAlias = "int | Callable[[], int]"  # bytes, or what tells how many they are now


@dataclass(frozen=True)
class DiskRoom:
    """With less than `floor` bytes free on the disk the tier does not grow: what is new takes the place of something
    old. A tier that does not evict refuses what has no room.
    """

    root: Path
    budget: int | None  # bytes; None is unbounded
    floor: Floor
    evicts: bool
    order: EvictionOrder
    variants: int  # of a chunk

    def choose(self, nbytes: int, more: int, loose: Iterable[Evictable]) -> tuple[list[Evictable], str]:
        """What goes, of those that may (in their order), so that `more` bytes fit; or nothing, and why they do not."""
        need, why = self.excess(nbytes, more)
        if need <= 0 or not self.evicts:
            return [], why if need > 0 else ""
        chosen = victims(loose, need)
        return chosen or [], why if chosen is None else ""

    def beyond_by(self, nbytes: int) -> int:
        """How much of that is to go for the budget alone."""
        return max(0, nbytes - self.budget) if self.evicts and self.budget is not None else 0

    def beyond(self, nbytes: int, loose: Iterable[Evictable], most: int | None = None) -> list[Evictable]:
        """What goes for it, as far as it may; the first `most`."""
        need = self.beyond_by(nbytes)
        return first_of(islice(loose, most), need) if need else []

    def excess(self, nbytes: int, more: int) -> tuple[int, str]:
        """Bytes that have to go, where any do, before a tier of `nbytes` takes in `more`, which are written by now; and
        why it cannot take them in where they do not go, with what to do.
        """
        over, why = 0, ""
        if self.budget is not None and nbytes + more > self.budget:
            over, why = nbytes + more - self.budget, self._over_budget(self.budget)
        floor = self.floor() if callable(self.floor) else self.floor
        if floor and more > 0:
            free = free_bytes(self.root)
            if (lacking := min(more, floor - free)) > over:
                over, kept = lacking, f"{free:,} are free, and {floor:,} stay free"
                why = f"has no room on the disk of {self.root}: {kept}: free some space"
        return over, why

    def _over_budget(self, budget: int) -> str:
        beside, remedy = ("the pinned entries", "unpin") if self.evicts else ("what is there", "delete")
        told = f"does not fit the disk budget of {budget:,} bytes of {self.root} beside {beside}"
        return f"{told}: raise the budget or {remedy} some"
