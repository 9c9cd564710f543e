"""Which entries go when a tier is full. The order is a function, so another policy is another function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Evictable:
    """An entry as the policy sees it."""

    name: str
    nbytes: int
    used: int  # when it was last put or got: grows with time, comparable within one tier only
    pinned: bool


EvictionOrder = Callable[[Evictable], float]  # the lowest goes first


def least_recently_used(candidate: Evictable) -> float:
    return candidate.used


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
    loose = sorted((candidate for candidate in kept if not candidate.pinned and candidate.name != lead), key=order)
    return loose[: max(0, len(kept) + 1 - VARIANTS)]


def in_order(recent: Iterable[Evictable], order: EvictionOrder) -> Iterable[Evictable]:
    """Of candidates by their last use, as tiers know them. Any other order looks at all of them."""
    return recent if order is least_recently_used else sorted(recent, key=order)


def victims(candidates: Iterable[Evictable], need: int) -> list[Evictable] | None:
    """The first of these that are `need` bytes together, no more than that takes, or None when there are not enough."""
    chosen: list[Evictable] = []
    left = need
    for candidate in candidates:
        if left <= 0:
            break
        chosen.append(candidate)
        left -= candidate.nbytes
    return chosen if left <= 0 else None
