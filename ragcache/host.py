"""What the system gives a process: files and folders, what they lie on, and forks.

Files and folders are for their owner alone, whatever the umask; what is there already keeps the modes that it was
given. The documents of a user, and what is computed from them, are read by nobody else unless the user says so. On
another machine SQLite's write-ahead log cannot be relied on. Connections to databases do not outlive a fork, such as
that of a server which loads the application before its workers.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Protocol
from weakref import WeakSet

FILE, FOLDER = 0o600, 0o700
MOUNTS = Path("/proc/self/mounts")  # not there on other systems than Linux: nothing is told then
NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
    | {"ocfs2", "orangefs", "smb3", "smbfs"}
)
REMOTE_FUSE = frozenset({"ceph", "glusterfs", "gcsfuse", "juicefs", "mfs", "moosefs", "rclone", "s3fs", "sshfs"})
FORK_S = 10.0  # that a fork waits for threads that have something locked for a moment
_OCTAL = re.compile(r"\\([0-7]{3})")  # how the table writes spaces and the like


def private_folder(folder: Path) -> None:
    """Make it and its parents where they are not there. Raises OSError."""
    missing = [folder, *folder.parents]
    while missing and missing[-1].is_dir():
        missing.pop()
    for one in reversed(missing):
        one.mkdir(mode=FOLDER, exist_ok=True)


def private_file(path: Path) -> None:
    """An empty one where none is, in a private folder, before a library makes it readable for all. Raises OSError.

    One that is there is not even opened: to close it would give up the locks that this process holds on it, and a
    catalog without SQLite's locks loses its log to the next process.
    """
    private_folder(path.parent)
    with suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE))


def sync(path: Path) -> None:
    """Of a file what is in it, of a folder its names. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def put(fresh: Path, target: Path) -> None:
    """Give a file its name, for good. Raises OSError."""
    sync(fresh)
    fresh.replace(target)
    sync(target.parent)


def allowed() -> set[int]:
    """Cores of all threads of this process together: OpenMP may have bound each of them to one of its own."""
    if not hasattr(os, "sched_getaffinity"):
        return set(range(os.cpu_count() or 1))
    found = set(os.sched_getaffinity(0))
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # it has ended
                found |= os.sched_getaffinity(int(thread.name))
    return found


def free_bytes(folder: Path) -> int:
    """For us, on the disk of a folder or where it would be made."""
    return shutil.disk_usage(_existing(folder)).free


def disk_size(folder: Path) -> int:
    """Of the whole disk of a folder."""
    return shutil.disk_usage(_existing(folder)).total


def one_disk(*folders: Path) -> bool:
    """Whether all of them lie on it, or would."""
    return len({_existing(folder).stat().st_dev for folder in folders}) == 1


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.absolute().parents) if one.exists())


def network_file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """Its kind; empty for a local one, and where that cannot be known."""
    kind = file_system(folder, mounts)
    name = kind.removeprefix("fuse.")
    return kind if kind in NETWORK or (name != kind and name in REMOTE_FUSE) else ""


def mount_point(written: str) -> str:
    """From how a table of mounts writes it."""
    return _OCTAL.sub(lambda code: chr(int(code[1], 8)), written)


def file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """Its kind, by the longest mount point above the folder; empty where that cannot be known."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    above = {str(folder), *map(str, folder.parents)}
    found, longest = "", 0
    for line in lines:
        _, point, kind, *_ = [*line.split(" "), "", "", ""]
        point = mount_point(point)
        # Of two at one place the later one counts. What an automount mounts has a line of its own; gVisor calls the
        # root of a container 9p.
        if point in above and len(point) >= longest and kind != "autofs" and (point, kind) != ("/", "9p"):
            found, longest = kind, len(point)
    return found


class Forking(Protocol):
    """What holds connections, none of which may get into a child."""

    def before_fork(self) -> None: ...

    def after_fork(self) -> None:
        """In the parent."""

    def after_fork_in_child(self) -> None: ...


class BriefLock:
    """For moments. Whoever has it asks for no other lock than such ones.

    A fork waits until no thread has any: its child finds each of them free, and what it guards whole.
    """

    def __init__(self) -> None:
        self.renew()
        _forks().add_lock(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def take(self, seconds: float) -> bool:
        """Whether it is had within them; to be let go by `free`."""
        return self._lock.acquire(timeout=seconds)

    def free(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


def carry_over(one: Forking) -> None:
    """See to it that no connection of this one gets into a child."""
    _forks().add(one)


class _Forks:
    """Whom a fork concerns. Python never forgets what it was told to do at one, so it is told once, for all that live
    then.
    """

    def __init__(self) -> None:
        self._change = threading.Lock()  # of what follows: nobody keeps it, save at a fork
        self._living: WeakSet[Forking] = WeakSet()
        self._locks: WeakSet[BriefLock] = WeakSet()
        self._taken: list[BriefLock] = []
        self._held = False  # the lock of them, by whoever forks
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def add(self, one: Forking) -> None:
        with self._change:
            self._living.add(one)

    def add_lock(self, lock: BriefLock) -> None:
        with self._change:
            self._locks.add(lock)

    def _now(self) -> tuple[list[Forking], list[BriefLock]]:
        with self._change:
            return list(self._living), list(self._locks)

    def _before(self) -> None:
        for one in self._now()[0]:
            one.before_fork()
        self._taken = _all_taken(self._now()[1])  # behind all others: who waits for such a lock may have one of theirs
        self._held = self._change.acquire()

    def _in_parent(self) -> None:
        """Also where somebody has interrupted what went before."""
        (taken, self._taken), (held, self._held) = (self._taken, []), (self._held, False)
        if held:
            self._change.release()
        for lock in taken:
            lock.free()
        for one in self._now()[0]:
            one.after_fork()

    def _in_child(self) -> None:
        self._taken, self._held, self._change = [], False, threading.Lock()
        living, locks = self._now()
        for lock in locks:
            lock.renew()
        for one in living:
            one.after_fork_in_child()


def _all_taken(locks: list[BriefLock]) -> list[BriefLock]:
    """Who has one may wait for another: so none is kept while one is waited for. None, where that takes too long: the
    child then has them free all the same, and perhaps a change that nobody ends.
    """
    late = monotonic() + FORK_S
    while (left := late - monotonic()) > 0:
        with ExitStack() as taken:
            for place, lock in enumerate(locks):
                if not lock.take(left if place == 0 else 0.0):
                    locks = [lock, *(one for one in locks if one is not lock)]
                    break
                taken.callback(lock.free)
            else:
                taken.pop_all()
                return locks
    return []


@cache
def _forks() -> _Forks:
    return _Forks()
