"""Cache-Craft's reuse frequency (section 3.3): what is evicted has the lowest f_r, which each use raises by 1/CFO. So a
variant that serves prompts as it is counts for more than one that is mostly computed again.
"""

from __future__ import annotations

from ragcache.store.eviction.base import Evictable, EvictionOrder


def reuse_frequency(candidate: Evictable) -> float:
    return candidate.uses.worth


CRAFT = EvictionOrder(reuse_frequency)
