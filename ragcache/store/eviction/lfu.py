"""What was used least often goes first."""

from __future__ import annotations

from ragcache.store.eviction.base import Evictable, EvictionOrder


def least_frequently_used(candidate: Evictable) -> float:
    return candidate.uses.count


LFU = EvictionOrder(least_frequently_used)
