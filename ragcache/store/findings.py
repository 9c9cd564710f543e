"""What a store tells: of which tier, what was found there, what of it is bad, and what the tier has and has done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragcache.types import Variant

# The tiers by name, the fastest first: the one that has nothing to wait for, files here, and what machines share.
RAM, DISK, BUCKET = TIERS = ("ram", "disk", "bucket")


@dataclass(frozen=True)
class Fetched:
    """A variant and what it took to bring it."""

    variant: Variant
    tier: str  # where it was found
    nbytes: int  # read there
    seconds: float


@dataclass(frozen=True)
class TierStats:
    tier: str
    entries: int
    nbytes: int
    budget: int | None  # bytes; None is unbounded
    hits: int  # entries that were opened: one whose body is bad then is among them
    misses: int
    evictions: int
    quarantined: int
    displaced: int = 0  # variants that newer ones of the same chunk took the place of
    declined: int = 0  # that were worth less than what would have had to go

    @property
    def crowded_out(self) -> int:
        """What went for something else, or was not taken in for it."""
        return self.evictions + self.declined


@dataclass(frozen=True)
class Flaw:
    """An entry that was found bad."""

    where: str
    reason: str
