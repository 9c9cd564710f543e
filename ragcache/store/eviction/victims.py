"""Which entries go: when a tier is full, and when a chunk has as many variants as are kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ragcache.store.eviction.base import Evictable, EvictionOrder

# Variants of one chunk behind one System segment. Boilerplate stands in a thousand documents, behind a thousand
# contexts, and a prompt looks at all variants of each of its chunks. A chunk of one document seldom gets more than four
# (its own, its lead, those of prompts that lacked it), so this many leave it alone; and of boilerplate's contexts one
# that a prompt repeats is as rare among a thousand as among a few.
VARIANTS = 8  # unless a store is told another number
MOST_VARIANTS = 64


def displaced(
    others: Iterable[Evictable], order: EvictionOrder, lead: str, variants: int = VARIANTS
) -> list[Evictable]:
    """Those of a chunk's other variants that a new one takes the place of, so that so many stay. `lead` names the one
    without context, exact in every prompt that the chunk leads: it stays, as pinned ones do, whatever the number.
    """
    kept = list(others)
    loose = [candidate for candidate in kept if not candidate.pinned and candidate.name != lead]
    loose.sort(key=lambda candidate: (order.rank(candidate), candidate.used))  # of one chunk, many are equally large
    return loose[: max(0, len(kept) + 1 - variants)]


def in_order(recent: Iterable[Evictable], order: EvictionOrder) -> Iterable[Evictable]:
    """Of candidates by their last use, as tiers know them. Any other order looks at all of them."""
    return recent if order.as_known else sorted(recent, key=order.rank)


def victims(candidates: Iterable[Evictable], need: int) -> list[Evictable] | None:
    """The first of these that are `need` bytes together, no more than that takes, or None when there are not enough."""
    chosen = first_of(candidates, need)
    return chosen if sum(candidate.nbytes for candidate in chosen) >= need else None


class Lesser:
    """Of candidates, the first to go first, those that are worth less than what would take their place: all of them,
    where that is None or pinned, or where the order takes in whatever comes.
    """

    def __init__(self, candidates: Iterable[Evictable], new: Evictable | None, order: EvictionOrder):
        self._candidates, self._order = candidates, order
        judges = order.judges and new is not None and not new.pinned
        self._worth = order.rank(new) if judges and new is not None else math.inf
        self.ended = False  # at one that is worth as much

    def __iter__(self) -> Iterator[Evictable]:
        for one in self._candidates:
            if self._order.rank(one) >= self._worth:
                self.ended = True
                return
            yield one


def first_of(candidates: Iterable[Evictable], need: int) -> list[Evictable]:
    """The same, or all of them."""
    chosen: list[Evictable] = []
    left = need
    if left <= 0:
        return chosen
    for candidate in candidates:  # no more are looked at than are taken
        chosen.append(candidate)
        left -= candidate.nbytes
        if left <= 0:
            break
    return chosen
