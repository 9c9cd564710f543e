"""What was read in part is brought into memory as if it had been read whole, while nobody reads for a prompt."""

from __future__ import annotations

import threading
from functools import partial

from ragcache.errors import StoreError
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
        self._others, self._closed = others, threading.Event()
        self._thread = DiskThreads(1, "ragcache-rise", limit_s)
        self._lock, self._waiting = BriefLock(), set[VariantKey]()

    def add(self, store: KVStore, key: VariantKey) -> None:
        with self._lock:
            if key in self._waiting or len(self._waiting) >= MOST:
                return
            self._waiting.add(key)
        self._thread.submit(partial(self._rise, store, key))

    def _rise(self, store: KVStore, key: VariantKey) -> None:
        try:
            lift_one(store, key, self._pause)
        finally:
            with self._lock:
                self._waiting.discard(key)

    def _pause(self) -> None:
        """Before each block."""
        while not self._others.idle:
            if self._closed.wait(LOOK_S):
                raise StoreError("the engine ends")

    def close(self) -> None:
        self._closed.set()
        self._thread.close()
