"""Where bad files go, each with its reason beside it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ragcache.errors import StoreError
from ragcache.private import private_file, private_folder

_log = logging.getLogger(__name__)
_KEPT = 32


class Quarantine:
    """Keeps the newest few files: enough to look into, without filling the disk that the budget was set for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, path: Path, reason: StoreError) -> None:
        """Move `path` here. The caller holds the lock of the store."""
        private_folder(self._folder)
        path.replace(self._folder / path.name)
        # A full disk has no room for the reason; the log has it.
        with suppress(OSError):
            told = (self._folder / path.name).with_suffix(".txt")
            private_file(told)
            told.write_text(f"{reason}\n")
        _log.warning("cache entry moved to %s: %s", self._folder, reason)
        self._forget_old()

    def _forget_old(self) -> None:
        files = sorted(self._folder.glob("*.kv"), key=lambda path: path.stat().st_ctime_ns)
        for path in files[:-_KEPT]:
            path.unlink()
            path.with_suffix(".txt").unlink(missing_ok=True)


@dataclass(frozen=True)
class BadFile:
    path: Path
    inode: int
    nbytes: int
    reason: StoreError


class BadFileRemoval:
    """Takes away what a look-up found bad, on a thread of its own: the folder's lock and its recount take as long as
    the disk pleases, and whoever looks up may serve everybody.
    """

    def __init__(self, take: Callable[[Sequence[BadFile]], None]) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._found: list[BadFile] = []
        self._thread: threading.Thread | None = None

    def add(self, bad: BadFile) -> None:
        with self._lock:
            self._found.append(bad)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ragcache-quarantine", daemon=True)
                self._thread.start()

    def settle(self) -> None:
        """Wait until all that was found is away."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                found, self._found = self._found, []
                if not found:
                    self._thread = None
                    return
            try:
                self._take(found)
            except OSError as error:  # they stay where they are, and are left out all the same
                _log.warning("bad cache entries stay in their place: %s", error)
