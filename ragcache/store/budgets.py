"""Budgets that change while a store runs: what such a change evicts at once, and what it may come to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragcache.errors import ConfigError
from ragcache.store.eviction.base import Evictable
from ragcache.store.eviction.victims import VARIANTS
from ragcache.store.reuse import ReuseRecord

UNBOUNDED = 8 << 30  # bytes that a budget counts as which is none, where it is shared out


def share_of(budget: int | None, share: float) -> int:
    return int((UNBOUNDED if budget is None else budget) * share)


@dataclass(frozen=True)
class Leaving:
    """What goes from a tier."""

    entries: int = 0
    nbytes: int = 0

    @staticmethod
    def of(chosen: Iterable[Evictable]) -> Leaving:
        sizes = [one.nbytes for one in chosen]
        return Leaving(len(sizes), sum(sizes))

    def __add__(self, more: Leaving) -> Leaving:
        return Leaving(self.entries + more.entries, self.nbytes + more.nbytes)


@dataclass(frozen=True)
class BudgetOutlook:
    """Of a tier: its budget (None is unbounded) and another one that is asked for, what that would evict at once, and
    the shares of all uses at which an entry would be there, as those of what was used again since the store was opened
    foretell: None where there were none.
    """

    tier: str
    budget: int | None
    nbytes: int  # that it holds
    asked: int | None
    leaving: Leaving
    hit_rate: float | None
    hit_rate_asked: float | None
    uses: int  # that the rates are counted on


class BudgetedTier(ABC):
    name: ClassVar[str]
    reuse: ReuseRecord  # of what is opened, used and put here

    @property
    @abstractmethod
    def budget(self) -> int | None:
        """Bytes; None is unbounded."""

    @abstractmethod
    def held(self) -> int:
        """Bytes."""

    def has_room(self, nbytes: int) -> bool:
        """Whether so much comes in without anything going for it."""
        return self.budget is None or self.held() + nbytes <= self.budget

    @abstractmethod
    def leaving(self, budget: int | None) -> Leaving:
        """What `fit` would evict now."""

    @abstractmethod
    def fit(self, budget: int | None) -> Leaving:
        """Have this budget from now on -> what was evicted for it."""


class Resizable(ABC):
    """A store whose tiers may be given other budgets while threads and other processes use it."""

    most_variants: int = VARIANTS  # of a chunk behind one System segment that are kept; it stays as it was opened

    @abstractmethod
    def tiers(self) -> Sequence[BudgetedTier]:
        """The fastest first."""

    def outlook(self, tier: str, budget: int | None) -> BudgetOutlook:
        """What `resize` would do now, and may come to. Nothing changes. Raises as that does."""
        found = self.resizable(tier, budget)
        rates = found.reuse.hit_rate(found.budget), found.reuse.hit_rate(budget)
        return BudgetOutlook(tier, found.budget, found.held(), budget, found.leaving(budget), *rates, found.reuse.uses)

    def resize(self, tier: str, budget: int | None) -> Leaving:
        """Give the tier of this name another budget, None for no limit, until the store is closed -> what was evicted
        at once, in the tier's order. Pinned entries stay, so it may hold more until they are let go.

        Raises ConfigError for a tier that is not there, and for a budget that would leave it out.
        """
        return self.resizable(tier, budget).fit(budget)

    def resizable(self, tier: str, budget: int | None) -> BudgetedTier:
        """The tier of this name, if it may have this budget. Raises as `resize`."""
        there = {one.name: one for one in self.tiers()}
        if tier not in there:
            raise ConfigError(
                f"no tier {tier!r} can have a budget, but {', '.join(there)}: the store was opened without it"
            )
        if budget is not None and budget <= 0:
            raise ConfigError(f"a budget of {budget} bytes for {tier}: give more; only at a start 0 leaves a tier out")
        return there[tier]
