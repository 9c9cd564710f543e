"""Caches of a bounded number of tokens, by what goes first. Each is asked for a passage, and has it afterwards where it
is worth its room.

`s3fifo` (Yang and others, 2023: a small queue before a main one, and the names of what left the small one) and
`tinylfu` (Einziger and others, 2017: a window before a segmented LRU, whose victim has to be asked for more seldom than
what is to take its place) count tokens where they count entries. The orders of the store are in `stored.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]


class TraceCache(ABC):
    """Of at most `capacity` tokens; `tokens` of each passage."""

    def __init__(self, tokens: Tokens, capacity: int):
        self.tokens, self.capacity = tokens, capacity

    @abstractmethod
    def ask(self, place: int) -> bool:
        """Whether it was there."""


class Queue(OrderedDict[int, int]):
    """Passages in an order, with their tokens, and the sum of them."""

    total = 0

    def push(self, place: int, tokens: int) -> None:
        self[place] = tokens
        self.total += tokens

    def take(self, place: int) -> int:
        self.total -= (tokens := self.pop(place))
        return tokens

    @property
    def oldest(self) -> int:
        return next(iter(self))


class LruCache(TraceCache):
    def __init__(self, tokens: Tokens, capacity: int):
        super().__init__(tokens, capacity)
        self._there = Queue()

    def ask(self, place: int) -> bool:
        if place in self._there:
            self._there.move_to_end(place)
            return True
        if (length := int(self.tokens[place])) <= self.capacity:
            self._there.push(place, length)
            while self._there.total > self.capacity:
                self._there.take(self._there.oldest)
        return False


class S3FifoCache(TraceCache):
    SMALL, MOST = 0.1, 3

    def __init__(self, tokens: Tokens, capacity: int):
        super().__init__(tokens, capacity)
        self._small, self._main, self._left = Queue(), Queue(), Queue()
        self._uses = Counter[int]()

    def ask(self, place: int) -> bool:
        if place in self._small or place in self._main:
            self._uses[place] = min(self.MOST, self._uses[place] + 1)
            return True
        if (length := int(self.tokens[place])) > self.capacity:
            return False
        while self._small.total + self._main.total + length > self.capacity:
            if self._small and (self._small.total >= self.SMALL * self.capacity or not self._main):
                self._pass_on()
            else:
                self._evict()
        if place in self._left:
            self._left.take(place)
            self._main.push(place, length)
        else:
            self._small.push(place, length)
        self._uses[place] = 0
        return False

    def _pass_on(self) -> None:
        length = self._small.take(place := self._small.oldest)
        if self._uses[place] > 1:
            self._main.push(place, length)
            return
        self._left.push(place, length)
        while self._left.total > (1 - self.SMALL) * self.capacity:
            self._left.take(self._left.oldest)

    def _evict(self) -> None:
        length = self._main.take(place := self._main.oldest)
        if self._uses[place]:
            self._uses[place] -= 1
            self._main.push(place, length)


class TinyLfuCache(TraceCache):
    WINDOW, PROTECTED, SAMPLE = 0.01, 0.8, 10

    def __init__(self, tokens: Tokens, capacity: int):
        super().__init__(tokens, capacity)
        self._window, self._probation, self._protected = Queue(), Queue(), Queue()
        self._uses, self._counted = Counter[int](), 0
        # Large enough for any one passage, which enters by it.
        self._of_window = min(capacity, max(int(self.WINDOW * capacity), int(tokens.max())))

    def ask(self, place: int) -> bool:
        self._count(place)
        for queue in (self._window, self._protected):
            if place in queue:
                queue.move_to_end(place)
                return True
        if place in self._probation:
            self._protected.push(place, self._probation.take(place))
            while self._protected.total > self.PROTECTED * (self.capacity - self._of_window):
                self._probation.push(self._protected.oldest, self._protected.take(self._protected.oldest))
            return True
        if (length := int(self.tokens[place])) <= self.capacity:
            self._window.push(place, length)
            while self._window.total > self._of_window:
                self._enter(self._window.oldest, self._window.take(self._window.oldest))
        return False

    def _enter(self, place: int, length: int) -> None:
        """The main part, where its victims were asked for more seldom."""
        room = self.capacity - self._of_window
        while self._probation.total + self._protected.total + length > room:
            queue = self._probation or self._protected
            if not queue or self._uses[queue.oldest] >= self._uses[place]:
                return
            queue.take(queue.oldest)
        self._probation.push(place, length)

    def _count(self, place: int) -> None:
        self._uses[place] += 1
        self._counted += 1
        if self._counted >= self.SAMPLE * len(self.tokens):  # all are halved, as the sketch's counters are
            self._uses = Counter({one: uses // 2 for one, uses in self._uses.items()})
            self._counted //= 2


CACHES: Mapping[str, Callable[[Tokens, int], TraceCache]] = {
    "s3fifo": S3FifoCache,
    "tinylfu": TinyLfuCache,
}
