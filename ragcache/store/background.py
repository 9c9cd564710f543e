"""What look-ups leave behind, done on a thread of its own: a folder's lock takes as long as the disk and others please,
and whoever looks up may serve everybody.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

_log = logging.getLogger(__name__)


class Background:
    """Runs tasks one after the other. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks = deque[Callable[[], object]]()
        self._thread: threading.Thread | None = None

    def add(self, task: Callable[[], object]) -> None:
        """One that fails is logged, and left out."""
        with self._lock:
            self._tasks.append(task)
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
                task = self._tasks.popleft()
            try:
                task()
            except (OSError, sqlite3.Error) as error:
                _log.warning("the cache folder was not tidied up: %s", error)
