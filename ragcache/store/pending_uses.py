"""Uses that are not written down yet: a hit waits for no disk."""

from __future__ import annotations

import sqlite3
import threading
import time

from ragcache.forks import carry_over

_MOST_USES, _USES_S = 256, 1.0  # that are written down together; how long they may wait for the next use after them


class PendingUses:
    """Threads may share it."""

    def __init__(self) -> None:
        self._begin()
        carry_over(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, tuple[int, int]] = {}  # when last, and how often
        self._due = 0.0

    def add(self, digest: str) -> bool:
        """Whether it is time to write them down."""
        with self._lock:
            self._uses[digest] = (time.time_ns(), self._uses.get(digest, (0, 0))[1] + 1)
            now = time.monotonic()
            if len(self._uses) < _MOST_USES and now < self._due:
                return False
            self._due = now + _USES_S
            return True

    def write(self, connection: sqlite3.Connection) -> None:
        """What a change that fails takes with it is no loss: only the order of eviction suffers."""
        with self._lock:
            uses, self._uses = self._uses, {}
        rows = [(used, count, digest) for digest, (used, count) in uses.items()]
        if rows:
            connection.executemany("UPDATE entries SET used = max(used, ?), uses = uses + ? WHERE digest = ?", rows)

    def before_fork(self) -> None: ...

    def after_fork(self) -> None: ...

    def after_fork_in_child(self) -> None:
        """The parent writes its own down; another thread of its may have held the lock."""
        self._begin()
