"""What is expected to save least for its room goes first; what would save no more than that is not taken in.

A use saves about the same for each byte, wherever an entry stands (docs/log.md), so what counts are the uses that are
to come: by those of the last requests, of which a conversation repeats some, and by those of a long time. Two short
entries serve more prompts than a long one that saves as much, so room counts too, by its root.
"""

from __future__ import annotations

import math

from ragcache.store.eviction.base import LATER, SOON, Evictable, EvictionOrder

SHARE = 0.02  # of what was asked for is asked for again at once


def expected_value(candidate: Evictable) -> float:
    uses = candidate.uses
    return (SHARE * uses.soon / SOON + uses.later / LATER) / math.sqrt(max(1, candidate.nbytes))


VALUE = EvictionOrder(expected_value, judges=True)
