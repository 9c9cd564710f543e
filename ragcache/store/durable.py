"""Files that are there whole or not at all, also after a kill or a power cut."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragcache.private import FILE, private_folder
from ragcache.store.layout import TEMPORARY


@contextmanager
def written_beside(target: Path, parts: Iterable[memoryview]) -> Iterator[Path]:
    """A file in the folder of `target` that holds `parts` and is on the disk; the block renames it or it is removed."""
    fd, temporary = _create_locked(target)
    try:
        for part in parts:
            _write_all(fd, part)
        os.fsync(fd)
        yield temporary
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in it last. Without its parents: what a power cut takes from there is computed again."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # another process has deleted the entry and its empty folder
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sweep(temporaries: Iterable[Path]) -> int:
    """Remove the temporary files whose writers are dead: a living one holds a lock on its file."""
    return sum(_swept(path) for path in temporaries)


def being_written(temporary: Path) -> bool:
    """Whether its writer lives and has not renamed it. What nobody writes is removed."""
    return not _swept(temporary) and temporary.exists()


def _swept(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # NFS locks only what may be written
    except OSError:
        return False  # gone, or another user's
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False  # locked, or its file system keeps no locks
    finally:
        os.close(fd)
    return True


def _create_locked(target: Path) -> tuple[int, Path]:
    while True:
        temporary = target.with_name(f"{target.stem}.{os.getpid()}.{secrets.token_hex(4)}{TEMPORARY}")
        try:
            private_folder(target.parent)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
        except FileNotFoundError:
            continue  # another process removed the empty folder just now
        except FileExistsError:
            if any(map(_blocked, target.parents)):
                raise
            continue  # mkdir met the folder, and it was gone when mkdir looked again
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, temporary
        os.close(fd)  # swept between its creation and its lock


def _blocked(folder: Path) -> bool:
    """Whether a file or a dangling link stands where a folder should."""
    try:
        return not stat.S_ISDIR(folder.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return folder.is_symlink()


def _write_all(fd: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.write(fd, data[done:])


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # not empty, or gone already
        folder.rmdir()


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """A descriptor to read from, or None when there is no such file. A pipe in its place keeps nobody waiting."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def inode_kept(found: os.stat_result) -> int:
    """As SQLite can hold it: those of network file systems may have 64 bits."""
    return found.st_ino & (2**63 - 1)


def stat_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
