"""One file to one outcome: what a reading process does with a job."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from app.errors import LoadError
from app.ingestion.confinement import memory_told, near_the_limit
from app.loaders import parse, refuse_unknown
from app.loaders.base import Parsed, ParseLimits
from app.loaders.damage import DAMAGE
from app.loaders.file_bytes import read_file

_TRIES = 3  # for a file that changes while it is read
_FURTHEST = (1 << 63) - 1  # nanoseconds that a catalog can keep: file systems go beyond the year 2262
PATIENCE = 1800.0  # seconds, whatever the size of the file
# What a number or a name in the content comes to. Of all else that the system refuses, a file that is in memory is not
# to blame: the machine lacks something, or a library cannot read its own files.
OF_CONTENT = {errno.EDOM, errno.EILSEQ, errno.EINVAL, errno.ENAMETOOLONG, errno.EOVERFLOW, errno.ERANGE}


@dataclass(frozen=True)
class Job:
    source: str
    known_hash: str | None  # of a document that need not be made again
    limits: ParseLimits
    seconds: float = PATIENCE  # that it may take


@dataclass(frozen=True)
class FileStamp:
    """Of the very bytes that were read."""

    content_hash: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Same:
    """The file is what it was."""

    stamp: FileStamp


@dataclass(frozen=True)
class ReadFile:
    stamp: FileStamp
    parsed: Parsed


@dataclass(frozen=True)
class Unread:
    """No document. With a stamp the content is to blame, and until it changes there is no use in trying again.

    Without one the reason may pass: what the file said before is still the best that is known of it, and stays.
    """

    reason: str
    stamp: FileStamp | None = None


Outcome = Same | ReadFile | Unread


def short_of_memory() -> Unread:
    """By this process, which may be bounded. Without a stamp: on another machine, or in a while, it may be enough."""
    return Unread(f"needs more memory to be read than {memory_told()}: split it, or try again when more is free")


def read(job: Job) -> Outcome:
    path = Path(job.source)
    try:
        refuse_unknown(path)
        for _ in range(_TRIES):
            before = _stat(path)
            outcome = _read(path, job, before)
            if before is None or _unchanged(before, _stat(path)):
                return outcome
    except LoadError as error:
        return Unread(error.reason)
    except MemoryError:
        return short_of_memory()
    except DAMAGE as error:  # outside of what `reading` guards; the next files are to be read all the same
        return Unread(
            f"cannot be read, by a fault of this program ({type(error).__name__}: {error}): report it, or convert the "
            "file to another format"
        )
    return Unread("changes again and again while it is read: ingest it again when it is complete")


def _read(path: Path, job: Job, told: os.stat_result | None) -> Outcome:
    try:
        data = read_file(path, job.limits)
    except LoadError as error:
        return Unread(error.reason, _blamed(told, job.limits))
    assert told is not None
    stamp = FileStamp(hashlib.sha256(data).hexdigest(), len(data), time_of_change(told))
    if stamp.content_hash == job.known_hash:
        return Same(stamp)
    try:
        return ReadFile(stamp, parse(path, data, job.limits))
    except LoadError as error:
        if near_the_limit():
            return Unread(f"{error.reason}; or reading it needs more memory than {memory_told()}")
        return Unread(error.reason, None if may_pass(error) else stamp)


def may_pass(error: BaseException | None) -> bool:
    """Whether something else than the content is behind an error of a loader."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, OSError) and error.errno is not None and error.errno not in OF_CONTENT:
            return True
        error = error.__cause__ or error.__context__
    return False


def _blamed(told: os.stat_result | None, limits: ParseLimits) -> FileStamp | None:
    """A file that is empty or too large will be so until it changes. Any other may be readable in a minute."""
    if told is None or not stat.S_ISREG(told.st_mode) or 0 < told.st_size <= limits.max_bytes:
        return None
    return FileStamp(hashlib.sha256(b"").hexdigest() if not told.st_size else "", told.st_size, time_of_change(told))


def time_of_change(told: os.stat_result) -> int:
    """In nanoseconds, as documents have it."""
    return max(-_FURTHEST, min(told.st_mtime_ns, _FURTHEST))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _unchanged(before: os.stat_result, after: os.stat_result | None) -> bool:
    names = ("st_size", "st_mtime_ns", "st_ino")
    return after is not None and all(getattr(before, name) == getattr(after, name) for name in names)
