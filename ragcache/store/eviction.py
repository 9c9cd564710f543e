"""Which entries go when a tier is full. The order is a function, so another policy is another function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """An entry as the policy sees it."""

    name: str
    nbytes: int
    used: int  # when it was last put or got: grows with time, comparable within one tier only
    pinned: bool


EvictionOrder = Callable[[Candidate], float]  # the lowest goes first


def least_recently_used(candidate: Candidate) -> float:
    return candidate.used


def victims(candidates: Iterable[Candidate], order: EvictionOrder, need: int, spare: int = 0) -> list[Candidate] | None:
    """Unpinned entries of at least `need` bytes, or None when there are not enough.

    Up to `spare` bytes are freed even where fewer are needed, so that a full tier need not look for victims each time.
    """
    chosen: list[Candidate] = []
    freed = 0
    for candidate in sorted((c for c in candidates if not c.pinned), key=order):
        if freed >= need and freed + candidate.nbytes > spare:
            break
        chosen.append(candidate)
        freed += candidate.nbytes
    return chosen if freed >= need else None
