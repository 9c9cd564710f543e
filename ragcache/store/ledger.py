"""How much a cache folder holds, for all processes that share it.

The file's lock is what makes a change (put, delete, evict, quarantine) one step for the others. Its text is the usage
after the last change, "entries bytes". It is emptied before a change and written after it, so whoever finds it empty
knows that a process died in between and counts the files again.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ragcache.private import FILE


@dataclass
class FolderUsage:
    entries: int = 0
    nbytes: int = 0

    def add(self, nbytes: int) -> None:
        self.entries += 1
        self.nbytes += nbytes

    def remove(self, nbytes: int) -> None:
        self.entries -= 1
        self.nbytes -= nbytes


class Ledger:
    """Not reentrant: a thread that asks again inside `change` waits for itself."""

    def __init__(self, path: Path, count: Callable[[], FolderUsage]) -> None:
        self._path = path
        self._count = count

    @contextmanager
    def change(self, recount: bool = False) -> Iterator[FolderUsage]:
        """Alone among all threads and processes; what the block makes of the usage is kept."""
        with self._locked() as fd:
            usage = self._usage(fd, recount)
            os.ftruncate(fd, 0)
            yield usage  # an exception leaves the file empty, and the next one counts
            with suppress(OSError):  # so does a full disk
                os.pwrite(fd, f"{usage.entries} {usage.nbytes}\n".encode(), 0)

    def read(self) -> FolderUsage:
        with self._locked() as fd:
            return self._usage(fd, recount=False)

    def audit(self) -> tuple[FolderUsage, FolderUsage]:
        """The usage on record and the usage counted."""
        with self._locked() as fd:
            return self._usage(fd, recount=False), self._count()

    @contextmanager
    def _locked(self) -> Iterator[int]:
        # A descriptor of its own each time: flock then holds between threads too.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            # Said explicitly, because a child forked meanwhile has the descriptor too and would keep the lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _usage(self, fd: int, recount: bool) -> FolderUsage:
        recorded = re.fullmatch(rb"(\d+) (\d+)\n", os.pread(fd, 64, 0))
        if recount or recorded is None:
            return self._count()
        return FolderUsage(int(recorded[1]), int(recorded[2]))
