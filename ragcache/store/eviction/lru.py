"""What was used longest ago goes first: the order in which tiers know their entries anyhow."""

from __future__ import annotations

from ragcache.store.eviction.base import Evictable, EvictionOrder


def least_recently_used(candidate: Evictable) -> float:
    return candidate.used


LRU = EvictionOrder(least_recently_used, as_known=True, counts_uses=False)
