"""How an index is made: beside the one that is there, with its pins, and put into its place when it is full."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ragcache.private import FILE, private_file, private_folder
from ragcache.store.index_parts import Rows, connect, inode_of, mark_of, write_mark
from ragcache.store.index_tables import SCHEMA
from ragcache.store.layout import FolderLayout

Rebuild = Callable[[sqlite3.Connection], list[Path]]
_RESERVE = 1 << 20  # bytes, of which a change that frees some can be written on a full disk


@contextmanager
def alone(layout: FolderLayout) -> Iterator[None]:
    """Among all who make the index."""
    private_folder(layout.root)
    # A descriptor of its own each time: flock then holds between threads too.
    fd = os.open(layout.mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        # Said explicitly, because a child forked meanwhile has the descriptor too and would keep the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def make(layout: FolderLayout, old: int | None, shared: bool, rebuild: Rebuild) -> None:
    """In the place of this one, or of none; not where another one is there already."""
    half, whole = (layout.index.with_name(layout.index.name + end) for end in (".making", ".new"))
    with alone(layout):
        inode, useless = inode_of(layout.index), list[Path]()
        if inode not in (None, old):
            return
        with _kept(layout.index) as kept:
            if inode is not None or not whole.exists():  # nobody was killed just as it was put into its place
                useless = _fill(layout, half, shared, rebuild, kept)
                half.replace(whole)
            _remove(layout.index)
            whole.replace(layout.index)
    remove_all(useless)


@dataclass
class _Kept:
    """What no file tells, as far as it can be read."""

    pins: Rows = field(default_factory=list)
    uses: Rows = field(default_factory=list)


@contextmanager
def _kept(index: Path) -> Iterator[_Kept]:
    """Of the old index. Who finds it sound, as an older version does, changes nothing meanwhile: it would be lost."""
    kept = _Kept()
    with ExitStack() as held:
        if inode_of(index) is not None:
            with suppress(sqlite3.Error):
                old = held.enter_context(closing(connect(index)))
                with suppress(sqlite3.Error):
                    old.execute("BEGIN IMMEDIATE")
                kept.pins = old.execute("SELECT digest, owner, expires FROM pins").fetchall()
                kept.uses = old.execute("SELECT used, uses, digest FROM entries WHERE uses > 0").fetchall()
        yield kept


def _fill(layout: FolderLayout, half: Path, shared: bool, rebuild: Rebuild, kept: _Kept) -> list[Path]:
    _remove(half)
    private_file(half)
    try:
        with closing(connect(half)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")  # what a power cut leaves of it is made again
            connection.executescript(SCHEMA)
            connection.execute("BEGIN")
            connection.executemany("INSERT OR IGNORE INTO pins VALUES (?, ?, ?)", kept.pins)
            useless = rebuild(connection)
            connection.executemany("UPDATE entries SET used = max(used, ?), uses = ? WHERE digest = ?", kept.uses)
            connection.execute("COMMIT")
            connection.execute(f"PRAGMA journal_mode = {journal(shared)}")
            write_mark(layout, mark_of(connection, half.stat().st_ino, shared))
    except (sqlite3.Error, OSError):
        _remove(half)  # a full disk wants its room
        raise
    return useless


def journal(shared: bool) -> str:
    return "delete" if shared else "wal"


def _remove(index: Path) -> None:
    """It first: who opens it meanwhile is not to begin another log for it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        index.with_name(index.name + suffix).unlink(missing_ok=True)


def remove_all(paths: list[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def keep_room(layout: FolderLayout) -> None:
    """Where there is room: who needs it on a full disk frees more."""
    with suppress(OSError):
        fd = os.open(layout.reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE)
        try:
            if os.fstat(fd).st_size < _RESERVE:
                os.pwrite(fd, os.urandom(_RESERVE), 0)  # macOS has no posix_fallocate; zeros may be compressed
        except OSError:
            os.ftruncate(fd, 0)
        finally:
            os.close(fd)


def give_room(layout: FolderLayout) -> None:
    with suppress(OSError):
        os.truncate(layout.reserve, 0)
