"""What look-ups leave behind: tasks, done on a thread of its own, and uses, written down later. A folder's lock takes
as long as the disk and others please, and whoever looks up may serve everybody.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ragcache.host import carry_over

_MOST_USES, _USES_S = 256, 1.0  # that are written down together; how long they may wait for the next use after them
_log = logging.getLogger(__name__)


class Background:
    """Runs tasks one after the other. Threads may share it."""

    def __init__(self) -> None:
        self._begin()
        carry_over(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[tuple[Callable[..., object], tuple[Any, ...]], None] = {}  # in the order of their coming
        self._thread: threading.Thread | None = None

    def add(self, task: Callable[..., object], *values: Any) -> None:
        """To be called with these, once however often it is told before. One that fails is logged, and left out."""
        with self._lock:
            self._tasks[task, values] = None
            if self._thread is None or not self._thread.is_alive():  # a child of a fork has no thread of its parent's
                thread = threading.Thread(target=self._run, name="ragcache-store", daemon=True)
                with suppress(RuntimeError):  # there are no more to be had, so the task waits for the next one
                    thread.start()
                    self._thread = thread

    def settle(self) -> None:
        """Wait until all is done."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        self._run()  # what no thread could be had for

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._thread = None if self._thread is threading.current_thread() else self._thread
                    return
                task, values = next(iter(self._tasks))
                del self._tasks[task, values]
            try:
                task(*values)
            except (OSError, sqlite3.Error) as error:
                _log.warning("the cache folder was not tidied up: %s", error)

    def before_fork(self) -> None: ...

    def after_fork(self) -> None: ...

    def after_fork_in_child(self) -> None:
        """The parent does its own; another thread of its may have held the lock."""
        self._begin()


class PendingUses:
    """Uses that are not written down yet: a hit waits for no disk. Threads may share it."""

    def __init__(self) -> None:
        self._begin()
        carry_over(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, tuple[int, int]] = {}  # when last, and how often
        self._due = 0.0

    def add(self, digest: str, counts: bool = True) -> bool:
        """Whether it is time to write them down."""
        with self._lock:
            self._uses[digest] = (time.time_ns(), self._uses.get(digest, (0, 0))[1] + counts)
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
