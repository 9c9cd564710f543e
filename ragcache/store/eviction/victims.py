"""Which entries go: when a tier is full, and when a chunk has as many variants as are kept."""

from __future__ import annotations

from collections.abc import Iterable

from ragcache.store.eviction.base import Evictable, EvictionOrder
from ragcache.store.eviction.lru import least_recently_used
from ragcache.store.eviction.value import expected_value

# Variants of one chunk behind one System segment. Boilerplate stands in a thousand documents, behind a thousand
# contexts, and a prompt looks at all variants of each of its chunks. A chunk of one document seldom gets more than four
# (its own, its lead, those of prompts that lacked it), so this many leave it alone; and of boilerplate's contexts one
# that a prompt repeats is as rare among a thousand as among a few.
VARIANTS = 8


def displaced(others: Iterable[Evictable], order: EvictionOrder, lead: str) -> list[Evictable]:
    """Those of a chunk's other variants that a new one takes the place of, so that VARIANTS stay. `lead` names the one
    without context, exact in every prompt that the chunk leads: it stays, as pinned ones do.
    """
    kept = list(others)
    loose = [candidate for candidate in kept if not candidate.pinned and candidate.name != lead]
    loose.sort(key=lambda candidate: (order(candidate), candidate.used))  # of one chunk, many are equally large
    return loose[: max(0, len(kept) + 1 - VARIANTS)]


def in_order(recent: Iterable[Evictable], order: EvictionOrder) -> Iterable[Evictable]:
    """Of candidates by their last use, as tiers know them. Any other order looks at all of them."""
    return recent if order is least_recently_used else sorted(recent, key=order)


def victims(candidates: Iterable[Evictable], need: int) -> list[Evictable] | None:
    """The first of these that are `need` bytes together, no more than that takes, or None when there are not enough."""
    chosen = first_of(candidates, need)
    return chosen if sum(candidate.nbytes for candidate in chosen) >= need else None


def declined(new: Evictable, chosen: Iterable[Evictable], order: EvictionOrder) -> bool:
    """Whether it is worth no more than what would go for it."""
    return order is expected_value and not new.pinned and order(new) <= max(map(order, chosen), default=-1.0)


def first_of(candidates: Iterable[Evictable], need: int) -> list[Evictable]:
    """The same, or all of them."""
    chosen: list[Evictable] = []
    left = need
    for candidate in candidates:
        if left <= 0:
            break
        chosen.append(candidate)
        left -= candidate.nbytes
    return chosen
