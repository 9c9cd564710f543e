"""The SQLite file of a cache folder's index: who uses it when, and whether it is that of the files beside it.

Beside it lies a mark, whose text names the index, its last change and the start of the machine. So an index that is
lost, torn, another one, or older than the files (a copy that somebody put back, or what a power cut left) is known
before it is believed, and is made again of the files. Whoever changes the index judges it first, in that change: the
mark of a change that is being written says nothing yet to the others.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ragcache.host import MOUNTS, carry_over, network_file_system
from ragcache.store.index_making import alone, give_room, journal, keep_room, make, rebuild, remove_all
from ragcache.store.index_parts import (
    BUSY_S,
    Connected,
    Rows,
    UnusableIndex,
    fresh_number,
    inode_of,
    joined,
    no_room,
    read_mark,
    torn,
    write_mark,
)
from ragcache.store.layout import FolderLayout

_ENDING_S = 1.0  # that a program's end waits for others
_TRIES = 4  # somebody may put another index into its place just as it is opened
_LOG = 4 << 20  # bytes that SQLite's log keeps when its rows are in the index
_ERRORS = (sqlite3.DatabaseError, OSError, TypeError, ValueError)
T = TypeVar("T")


class IndexFile:
    """Threads may share it. Reading waits for nobody who writes; of those who write one goes at a time.

    On a network file system there is no write-ahead log: reading waits for a commit there, not for what leads to it.
    """

    def __init__(self, layout: FolderLayout, mounts: Path = MOUNTS):
        """Opens nothing yet."""
        self._layout = layout
        self._path = layout.index  # asked for at each look-up
        self._shared = bool(network_file_system(layout.root, mounts))
        self._held: dict[int, list[threading.Lock]] = {}  # over a fork, by the thread that forks
        self._begin()
        carry_over(self)

    def _begin(self) -> None:
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer: Connected | None = None
        self._reader: Connected | None = None

    def open(self, forced: bool = False) -> None:
        """So that look-ups wait for nothing later. The rows are compared with the files if the mark asks for it, or if
        it is forced.
        """
        sound = False
        with self._reading:
            try:
                self._reader = self._current(self._reader)
                sound = self._reader is not None and self._reader.mark(self._shared) == read_mark(self._layout)
            except _ERRORS as error:
                self._reader = _closed(self._reader)
                if not (torn(error) or no_room(error)):
                    raise
        if forced or not sound:
            self.change(_nothing, forced)
            self.read("SELECT revision FROM folder")
        keep_room(self._layout)

    def read(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """Raises sqlite3.Error and OSError, as does `change`. Waits for others only where nothing can be read."""
        for left in reversed(range(_TRIES)):
            forced = False
            with self._reading:
                try:
                    self._reader = self._current(self._reader)
                    if self._reader is not None:
                        return self._reader.connection.execute(sql, values).fetchall()
                except _ERRORS as error:
                    self._reader = _closed(self._reader)
                    if not left or not (torn(error) or no_room(error)):
                        raise
                    forced = torn(error) and not isinstance(error, UnusableIndex)  # a mark tells nothing of such a one
            self.change(_nothing, forced)
        raise UnusableIndex(f"{self._path} is taken away again and again")

    def change(self, work: Callable[[sqlite3.Connection], T], forced: bool = False, reserve: bool = True) -> T:
        """One step for all threads and processes: what `work` does is there after it, or not at all. It is done again
        where the index turns out to be torn or replaced, or the disk to be full: what it has freed and (`reserve`) what
        was kept for that may do then. What it told first counts.
        """
        told: list[T] = []
        useless, freed = list[int](), False  # inodes of torn ones
        with self._writing:
            for left in reversed(range(_TRIES)):
                inode = inode_of(self._path)
                try:
                    writer = self._writer = self._opened(useless)
                    self._transact(writer, lambda connection: told.append(work(connection)), forced)
                except _ERRORS as error:
                    self._writer = _closed(self._writer)
                    if left and torn(error):
                        useless += [] if inode is None else [inode]
                    elif left and no_room(error) and not freed:
                        freed = True
                        if reserve:
                            give_room(self._layout)
                    else:
                        raise
                    continue
                if inode_of(self._path) == writer.inode:
                    if freed:
                        keep_room(self._layout)
                    return told[0]
                forced = True  # what was done is told by nothing that others read
        raise UnusableIndex(f"{self._path} is taken away again and again")

    def note(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """A change that an index may lack: none is made or mended for it."""
        with self._writing:
            held = self._writer
            self._writer = None
            self._writer = self._current(held) if inode_of(self._path) is not None else _closed(held)
            if self._writer is not None:
                _transacted(self._writer.connection, work)

    def end(self, last: Callable[[sqlite3.Connection], None]) -> None:
        """Do this, and close; neither where somebody is in the way."""
        locks = [lock for lock in (self._writing, self._reading) if lock.acquire(timeout=_ENDING_S)]
        if len(locks) == 2:
            with suppress(sqlite3.Error, OSError):
                if self._writer is not None and inode_of(self._path) == self._writer.inode:
                    self._writer.connection.execute(f"PRAGMA busy_timeout = {int(_ENDING_S * 1000)}")
                    _transacted(self._writer.connection, last)
            self._close()
        for lock in locks:
            lock.release()

    def before_fork(self) -> None:
        """SQLite's connections belong to the process that opened them."""
        held = [lock for lock in (self._writing, self._reading) if lock.acquire(timeout=BUSY_S)]
        self._held[threading.get_ident()] = held
        if len(held) == 2:
            self._close()

    def after_fork(self) -> None:
        for lock in self._held.pop(threading.get_ident(), ()):
            lock.release()

    def after_fork_in_child(self) -> None:
        self._parents = self._writer, self._reader  # not even closed, where somebody was using them
        self._held = {}
        self._begin()

    def _close(self) -> None:
        self._writer, self._reader = _closed(self._writer), _closed(self._reader)

    def _current(self, held: Connected | None) -> Connected | None:
        """Somebody may have deleted the index under those who use it, or put another one into its place. One that is
        gone serves until a change makes it again.
        """
        if held is not None:
            if inode_of(self._path) in (None, held.inode):
                return held
            _closed(held)
        found = joined(self._path)
        if found is not None:
            try:
                self._prepare(found.connection)
            except sqlite3.Error:
                _closed(found)
                raise
        return found

    def _prepare(self, connection: sqlite3.Connection) -> None:
        mode = journal(self._shared)
        if connection.execute("PRAGMA journal_mode").fetchone() != (mode,):
            with alone(self._layout):
                connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("PRAGMA synchronous = NORMAL")  # without a file's sync at each commit
        connection.execute(f"PRAGMA journal_size_limit = {_LOG}")

    def _opened(self, useless: Sequence[int]) -> Connected:
        """For a change: made where it is gone, or one of these."""
        inode = inode_of(self._path)
        if inode is None or inode in useless:
            self._writer = _closed(self._writer)
            make(self._layout, inode, self._shared)
        found = self._current(self._writer)
        if found is None:
            raise UnusableIndex(f"{self._path} is gone again")
        return found

    def _transact(self, held: Connected, work: Callable[[sqlite3.Connection], None], forced: bool) -> None:
        """Nothing is written where nothing changes: a full disk has no room for it."""
        useless: list[Path] = []

        def judged(connection: sqlite3.Connection) -> None:
            if inode_of(self._path) != held.inode:
                raise UnusableIndex("another one was put into its place")
            before, mark, mine = connection.total_changes, read_mark(self._layout), held.mark(self._shared)
            if forced or mark != mine:
                if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                    raise UnusableIndex("torn")
                useless.extend(rebuild(connection, self._layout))
            work(connection)
            if connection.total_changes != before:
                connection.execute("UPDATE folder SET revision = ?", (fresh_number(),))
                mine = held.mark(self._shared)
            if mine != mark:
                write_mark(self._layout, mine)

        _transacted(held.connection, judged)
        remove_all(useless)


def _transacted(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], None]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        work(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")


def _closed(held: Connected | None) -> Connected | None:
    """What is held after that: nothing."""
    if held is not None:
        held.connection.close()
    return None


def _nothing(connection: sqlite3.Connection) -> None:
    pass
