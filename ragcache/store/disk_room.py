"""How much of a disk its tier may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragcache.host import free_bytes


@dataclass(frozen=True)
class DiskRoom:
    """With less than `floor` bytes free on the disk the tier does not grow: what is new takes the place of something
    old. A tier that does not evict refuses what has no room.
    """

    root: Path
    budget: int | None  # bytes; None is unbounded
    floor: int = 0
    evicts: bool = True

    def excess(self, nbytes: int, more: int) -> int:
        """Bytes that have to go, where any do, before a tier of `nbytes` takes in `more`, which are written by now."""
        over = 0 if self.budget is None else nbytes + more - self.budget
        if self.floor and more > 0:
            over = max(over, min(more, self.floor - free_bytes(self.root)))
        return over

    def refusal(self, nbytes: int) -> str:
        """Why an entry of so many bytes is not kept, and what to do."""
        if self.floor and (free := free_bytes(self.root)) < self.floor:
            return (
                f"a cache file of {nbytes:,} bytes has no room on the disk of {self.root}: {free:,} are free, and "
                f"{self.floor:,} stay free: free some space"
            )
        beside, remedy = ("the pinned entries", "unpin") if self.evicts else ("what is there", "delete")
        return (
            f"a cache file of {nbytes:,} bytes does not fit the disk budget of {self.budget:,} bytes of {self.root} "
            f"beside {beside}: raise the budget or {remedy} some"
        )
