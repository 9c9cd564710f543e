"""The contract of orders of eviction: a number for each entry, and what whoever goes by it has to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SOON, LATER = 30, 20_000  # uses of any entry until one counts half
AGAIN, BURST = 0.5, 60  # what a use at once counts for the long time; uses of any until half of the rest is made up


@dataclass(frozen=True, slots=True)
class Uses:
    """How often an entry was asked for, as far as its tier knows, also before it came and while it was gone."""

    count: float = 0.0  # in all
    soon: float = 0.0  # as they fade within some requests (ragcache/store/fading.py)
    later: float = 0.0  # and within a long time, where one of a burst counts less
    worth: float = 0.0  # 1/CFO of each, where that is known


NEVER = Uses()


@dataclass(frozen=True, slots=True)
class Evictable:
    """An entry as the policy sees it. Numbers grow with time, and compare within one tier only."""

    name: str
    nbytes: int
    used: int  # when it was last put or got
    pinned: bool
    came: int = 0  # when it was put for the first time
    uses: Uses = NEVER


@dataclass(frozen=True)
class EvictionOrder:
    """The lowest goes first; of equal ones that which was used longest ago."""

    rank: Callable[[Evictable], float]
    as_known: bool = False  # by their last use, as tiers know their entries anyhow: nobody has to rank them
    counts_uses: bool = True  # which whoever ranks looks up
    judges: bool = False  # what is worth no more than what would go for it is not taken in

    @property
    def heeds_uses(self) -> bool:
        """Whether it matters what was used, and when."""
        return self.as_known or self.counts_uses
