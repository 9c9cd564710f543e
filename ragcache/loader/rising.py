"""What was read in part is brought into memory as if it had been read whole, while nobody reads for a prompt."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import repeat

from ragcache.errors import FAULTS, StoreError
from ragcache.host import BriefLock
from ragcache.loader.threads import DiskThreads
from ragcache.store.base import KVStore
from ragcache.store.lifting import lift_one
from ragcache.types import VariantKey

MOST = 16  # that wait: what is left out comes with its next prompt, if there is one
LOOK_S = 0.05  # whether others read


class Risings:
    """Threads share it. One after the other, on a thread of its own: no prompt waits behind them."""

    def __init__(self, others: DiskThreads, limit_s: float):
        """`limit_s`: for so long in all one that has begun may wait for others."""
        self._others, self._limit_s, self._closed = others, limit_s, threading.Event()
        self._thread = DiskThreads(1, "ragcache-rise", limit_s)
        self._lock, self._process, self._waiting = BriefLock(), os.getpid(), set[VariantKey]()

    def add(self, store: KVStore, key: VariantKey) -> None:
        with self._lock:
            if self._process != os.getpid():  # a child of a fork has none of its parent's threads
                self._process, self._waiting = os.getpid(), set()
            if key in self._waiting or len(self._waiting) >= MOST:
                return
            self._waiting.add(key)
        task = self._thread.submit(partial(self._rise, store, key))
        task.future.add_done_callback(lambda _: self._ended(key))

    def _ended(self, key: VariantKey) -> None:
        with self._lock:
            self._waiting.discard(key)

    def _rise(self, store: KVStore, key: VariantKey) -> None:
        with suppress(*FAULTS):  # nobody asks for it; whoever does reads it himself, and is told
            self._pause(repeat(LOOK_S))
            lift_one(store, key, partial(self._pause, repeat(LOOK_S, int(self._limit_s / LOOK_S))))

    def _pause(self, waits: Iterator[float]) -> None:
        """While others read. `waits`: what is left of them."""
        while not (self._others.idle or self._closed.is_set()):
            if (seconds := next(waits, None)) is None:
                raise StoreError("others read for long: it has a file and memory meanwhile")
            self._closed.wait(seconds)
        if self._closed.is_set():
            raise StoreError("the engine ends")

    def close(self) -> None:
        self._closed.set()
        self._thread.close()
