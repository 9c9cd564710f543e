"""What knows the whole trace: the best set of passages that never changes, filled at first use (`oracle`), and Belady's
rule, by which what is used again last goes first (`belady`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

import numpy as np

from benchmarks.trace.caches import Tokens, TraceCache


class FixedSet(TraceCache):
    """Of those with the most uses again for each token, among the uses that count."""

    def __init__(self, tokens: Tokens, capacity: int, uses: Sequence[int], skipped: int):
        super().__init__(tokens, capacity)
        before, counted = (
            np.bincount(np.asarray(some, np.int64), minlength=len(tokens)) for some in (uses[:skipped], uses[skipped:])
        )
        again = counted - (before == 0)  # the first of all is none again
        self._wanted, left = set[int](), capacity
        for place in np.argsort(-again / tokens, kind="stable"):
            if tokens[place] <= left:
                self._wanted.add(int(place))
                left -= int(tokens[place])
        self._there = set[int]()

    def ask(self, place: int) -> bool:
        if place in self._there:
            return True
        if place in self._wanted:
            self._there.add(place)
        return False


class Belady(TraceCache):
    """With sizes it is no bound any more, but near one. What is used again no sooner than all that would have to go for
    it is not taken in.
    """

    def __init__(self, tokens: Tokens, capacity: int, uses: Sequence[int], skipped: int):
        super().__init__(tokens, capacity)
        self._next, self._turn = _next_uses(uses), count()
        self._again = np.full(len(tokens), np.inf)  # when each is used again
        self._there, self._free = np.zeros(len(tokens), bool), capacity

    def ask(self, place: int) -> bool:
        self._again[place] = self._next[next(self._turn)]
        if self._there[place]:
            return True
        lacking = int(self.tokens[place]) - self._free
        if lacking > 0:
            there = np.flatnonzero(self._there)
            latest = there[np.argsort(-self._again[there], kind="stable")]
            needed = int(np.searchsorted(np.cumsum(self.tokens[latest]), lacking)) + 1
            if needed > len(latest) or self._again[place] >= self._again[latest[needed - 1]]:
                return False
            self._there[latest[:needed]] = False
            self._free += int(self.tokens[latest[:needed]].sum())
        self._there[place] = True
        self._free -= int(self.tokens[place])
        return False


def _next_uses(uses: Sequence[int]) -> list[float]:
    """When each passage is read again."""
    found, seen = list[float](), dict[int, int]()
    for turn in range(len(uses) - 1, -1, -1):
        found.append(seen.get(uses[turn], np.inf))
        seen[uses[turn]] = turn
    return found[::-1]


ORACLES: Mapping[str, Callable[[Tokens, int, Sequence[int], int], TraceCache]] = {"oracle": FixedSet, "belady": Belady}
