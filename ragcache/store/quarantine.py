"""Where bad files go, each with its reason beside it."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
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
        files = sorted(self._folder.glob("*.kv"), key=moved_ns)
        for path in files[:-_KEPT]:
            path.unlink(missing_ok=True)
            path.with_suffix(".txt").unlink(missing_ok=True)


def moved_ns(path: Path) -> int:
    """When it came here. Others may discard it at any time."""
    try:
        return path.stat().st_ctime_ns
    except FileNotFoundError:
        return 0


@dataclass(frozen=True)
class BadFile:
    path: Path
    inode: int
    written_ns: int  # an inode is given again once its file is gone
    reason: StoreError = field(compare=False)

    @classmethod
    def of(cls, path: Path, found: os.stat_result, reason: StoreError) -> BadFile:
        return cls(path, found.st_ino, found.st_mtime_ns, reason)
