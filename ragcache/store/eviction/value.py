"""What is expected to save least for its room goes first; what would save no more than that is not taken in.

A use saves about the same for each byte, wherever an entry stands (docs/log.md), so what counts are the uses that are
to come: by those of the last requests, of which a conversation repeats some, and by those of a long time.
"""

from __future__ import annotations

from ragcache.store.eviction.base import Evictable
from ragcache.store.fading import LATER, SOON

SHARE = 0.02  # of what was asked for is asked for again at once


def expected_value(candidate: Evictable) -> float:
    uses = candidate.uses
    return (SHARE * uses.soon / SOON + uses.later / LATER) / max(1, candidate.nbytes)
