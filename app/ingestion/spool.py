"""Files that clients send, on the disk from their first byte to the end of their job. No name of theirs is one of ours.

    uploads/id                      names the folder in the requests of jobs, whose files are here and nowhere else
    uploads/PROCESS/lock            held as long as the process lives
    uploads/PROCESS/NUMBER.pdf      a file, and whose process took it

A process that has been killed leaves its folder: its files are others' then, and those that no job knows go.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from filelock import FileLock, Timeout

from app.ingestion.room import RESERVE
from ragcache.errors import RagcacheError, StoreFull
from ragcache.host import FILE, free_bytes, private_folder, put

FOLDER = "uploads"
LOCK = "lock"
ID = "id"
_NAME = re.compile(r"[0-9a-f]{32}/[0-9a-f]{32}(?:\.[a-z0-9]+)?")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LOOK = 16 * 1024**2  # bytes after which the room on the disk is looked at again, and what its owner may send
Check: TypeAlias = Callable[[int], None]


class UploadTooLong(RagcacheError):
    """More bytes than a file may have."""

    status = 413


class SpoolError(RagcacheError):
    """What was sent cannot be kept here."""

    status = 503


class Incoming:
    """A file while it comes. Its name, its hash and its size are those of what was written so far."""

    def __init__(self, name: str, path: Path, most: int, check: Check):
        self.name, self.path = name, path
        self.size = 0
        self._most, self._check, self._looked = most, check, 0
        self._digest = hashlib.sha256()
        with _kept_here(path):
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE), "wb")

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def expect(self, nbytes: int) -> None:
        """So many more are announced. Raises UploadTooLong, StoreFull and what `check` does."""
        if self.size + nbytes > self._most:
            raise UploadTooLong(f"the file has more than the {self._most:,} bytes that one may have here: split it")
        if free_bytes(self.path.parent) < nbytes + RESERVE:
            raise StoreFull("the disk of the server has no room for this file")
        self._check(self.size + nbytes)

    def write(self, data: bytes) -> None:
        """Raises SpoolError and what `expect` does."""
        if self.size + len(data) > self._most or self.size - self._looked >= _LOOK:
            self.expect(len(data))
            self._looked = self.size
        with _kept_here(self.path):
            self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def finish(self) -> None:
        """It is on the disk when this returns."""
        with _kept_here(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


@contextmanager
def _kept_here(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull("the disk of the server is full") from error
        raise SpoolError(f"cannot write to {path.parent}: {error.strerror or error}") from error


class Spool:
    """Open it before anything else is asked of it. Threads share it."""

    def __init__(self, data_dir: Path):
        self.folder = data_dir / FOLDER
        self.process = uuid.uuid4().hex
        self.place = ""
        self._own = self.folder / self.process
        self._alive = FileLock(self._own / LOCK, mode=FILE, thread_local=False)
        self._arriving = set[str]()
        self._lock = threading.Lock()

    def open(self) -> None:
        with _kept_here(self.folder):
            private_folder(self.folder)
            with self._alone():
                private_folder(self._own)
                self._alive.acquire(timeout=0)
                named = self.folder / ID
                if not named.exists():
                    fresh = self._own / ID
                    fresh.write_text(uuid.uuid4().hex, encoding="ascii")
                    put(fresh, named)
                self.place = named.read_text(encoding="ascii").strip()

    def close(self) -> None:
        """Its files stay for whoever comes next."""
        self._alive.release()

    @contextmanager
    def incoming(self, suffix: str, most: int, check: Check) -> Iterator[Incoming]:
        """A new file, which goes at the end of the block unless a job knows it by then (`known`). `check` is told how
        many bytes it will have, and raises where they are too many.
        """
        name = f"{self.process}/{uuid.uuid4().hex}{suffix}"
        with self._lock:
            self._arriving.add(name)
        file: Incoming | None = None
        try:
            file = Incoming(name, self.path(name), most, check)
            yield file
        finally:
            with self._lock:
                given = name not in self._arriving
                self._arriving.discard(name)
            if file is not None and not given:
                file.discard()

    def known(self, file: Incoming) -> None:
        """A job has it."""
        with self._lock:
            self._arriving.discard(file.name)

    def path(self, name: str) -> Path:
        assert _NAME.fullmatch(name), name  # it comes from the catalog
        return self.folder / name

    def drop(self, name: str) -> None:
        with suppress(OSError):
            self.path(name).unlink(missing_ok=True)

    def sweep(self, gone: Callable[[str], object], known: Callable[[], set[str]]) -> None:
        """Files that no job knows go. `gone` is told the processes that have been killed, before `known` is asked."""
        with self._alone():
            others = [one for one in self.folder.iterdir() if one.is_dir() and one != self._own]
            dead = [one for one in others if _has_ended(one)]
            for folder in dead:
                gone(folder.name)
            with self._lock:
                files = [f"{one.parent.name}/{one.name}" for folder in (self._own, *dead) for one in folder.iterdir()]
                unknown = {one for one in files if _NAME.fullmatch(one)} - self._arriving
            for name in unknown - known():
                self.drop(name)
            for folder in dead:
                with suppress(OSError):
                    (folder / ID).unlink(missing_ok=True)
                if {one.name for one in folder.iterdir()} <= {LOCK}:
                    shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with FileLock(self.folder / LOCK, mode=FILE):
            yield


def _has_ended(folder: Path) -> bool:
    """The process whose folder it is."""
    lock = FileLock(folder / LOCK, mode=FILE)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):  # what cannot be looked at may live
        return False
    lock.release()
    return True
