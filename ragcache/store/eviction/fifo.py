"""What came first goes first, however often it was used."""

from __future__ import annotations

from ragcache.store.eviction.base import Evictable


def first_come(candidate: Evictable) -> float:
    return candidate.came
