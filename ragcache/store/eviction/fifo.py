"""What came first goes first, however often it was used."""

from __future__ import annotations

from ragcache.store.eviction.base import Evictable, EvictionOrder


def first_come(candidate: Evictable) -> float:
    return candidate.came


FIFO = EvictionOrder(first_come, counts_uses=False)
