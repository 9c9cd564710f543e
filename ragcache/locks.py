"""Locks that are made as they are needed."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from ragcache.host import BriefLock


class LocksByKey:
    """One for each key, while somebody has it or waits for it: who works at one thing holds up nobody at another."""

    def __init__(self) -> None:
        self._change = BriefLock()
        self._locks = dict[Hashable, tuple[threading.Lock, int]]()  # and how many have it or wait for it

    @contextmanager
    def held(self, key: Hashable) -> Iterator[None]:
        with self._change:
            lock, others = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = lock, others + 1
        try:
            with lock:
                yield
        finally:
            with self._change:
                _, others = self._locks[key]
                if others > 1:
                    self._locks[key] = lock, others - 1
                else:
                    del self._locks[key]
