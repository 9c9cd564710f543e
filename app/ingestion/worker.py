"""The process that reads files: what holds it, one file to one outcome, and its answers.

`serve` answers pickled jobs on stdin with pickled answers on stdout, until the end. A process, and not a thread, since
the libraries that read formats may crash on a hostile file, or take the whole memory of the process with them.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import pickle
import re
import resource
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.client.amounts import size
from app.errors import LoadError
from app.loaders import parse, read_file, refuse_unknown
from app.loaders.base import Parsed, ParseLimits
from app.loaders.confinement import LEAST_MEMORY, OUT_OF_MEMORY, confine, confine_time
from app.loaders.soundness import DAMAGE

STATUS = Path("/proc/self/status")  # tells no peak in gVisor, and is not there where /proc is not mounted
NEAR = 0.8  # of the memory that a process may take
_TRIES = 3  # for a file that changes while it is read
_FURTHEST = (1 << 63) - 1  # nanoseconds that a catalog can keep: file systems go beyond the year 2262
PATIENCE = 1800.0  # seconds, whatever the size of the file
# What a number or a name in the content comes to. Of all else that the system refuses, a file that is in memory is not
# to blame: the machine lacks something, or a library cannot read its own files.
OF_CONTENT = {errno.EDOM, errno.EILSEQ, errno.EINVAL, errno.ENAMETOOLONG, errno.EOVERFLOW, errno.ERANGE}
LINE = 400  # bytes of memory that a line with its box takes


@dataclass(frozen=True)
class Job:
    source: str
    known_hash: str | None  # of a document that need not be made again
    limits: ParseLimits
    seconds: float = PATIENCE  # that it may take
    path: str = ""  # where the file is, when the source does not tell; by the source it is called then


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
    notes: tuple[str, ...] = ()  # what its loader warned of, such as parts that are left out


@dataclass(frozen=True)
class Unread:
    """No document. With a stamp the content is to blame, and until it changes there is no use in trying again.

    Without one the reason may pass: what the file said before is still the best that is known of it, and stays.
    """

    reason: str
    stamp: FileStamp | None = None


Outcome = Same | ReadFile | Unread


@dataclass(frozen=True)
class Reply:
    outcome: Outcome
    log: tuple[logging.LogRecord, ...]  # what the loaders said meanwhile
    spent: bool  # whether the next file needs a fresh process, of which it can be told what that file took


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        self.records.append(record)

    def taken(self) -> tuple[logging.LogRecord, ...]:
        records, self.records = tuple(self.records), []
        return records


def serve(parent: int, memory: int) -> None:
    """Before each answer goes the memory that it takes, and the answer when its reader has room for it.

    The end of stdin is the end, and so is that of the parent. `memory`: bytes that this process may take.
    """
    confine(parent, memory)
    with os.fdopen(os.dup(0), "rb") as jobs, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints must not come between the answers
        kept = _Kept()
        logging.getLogger("app").addHandler(kept)
        _serve(jobs, answers, kept)


def _serve(jobs: BinaryIO, answers: BinaryIO, kept: _Kept) -> None:
    while True:
        try:
            job: Job = pickle.load(jobs)
        except EOFError:
            return
        confine_time(job.seconds)
        outcome = read(job)
        try:
            pickle.dump(_nbytes(outcome), answers)
            answers.flush()
            pickle.dump(Reply(outcome, kept.taken(), near_the_limit()), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:
            return
        except MemoryError:
            os._exit(OUT_OF_MEMORY)


def _nbytes(outcome: Outcome) -> int:
    """Of the memory that it takes, about: a few bytes of a file may stand for any number of characters."""
    if not isinstance(outcome, ReadFile):
        return 0
    parsed = outcome.parsed
    return sys.getsizeof(parsed.text) + LINE * (len(parsed.lines) + len(parsed.pages))


def short_of_memory() -> Unread:
    """By this process, which may be bounded. Without a stamp: on another machine, or in a while, it may be enough."""
    return Unread(f"needs more memory to be read than {memory_told()}: split it, or try again when more is free")


def read(job: Job) -> Outcome:
    path = Path(job.path or job.source)
    try:
        refuse_unknown(Path(job.source))
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
        return ReadFile(stamp, parse(Path(job.source), data, job.limits))
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


def memory_for(limit: int, processes: int) -> int:
    """For each of them: all together take no more than half of the machine."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(limit, max(physical // 2 // processes, LEAST_MEMORY))


def memory_told() -> str:
    """How much this process may take, in words."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return "there is" if limit == resource.RLIM_INFINITY else f"the {size(limit)} that it may take"


def near_the_limit() -> bool:
    """Whether this process has ever been: a library that gets no memory may tell of anything else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or sys.platform != "linux":
        return False
    try:
        told = re.findall(rb"^Vm(?:Peak|Size):\s*(\d+) kB", STATUS.read_bytes(), re.MULTILINE)
    except OSError:
        return False
    return max(map(int, told), default=0) * 1024 >= NEAR * limit
