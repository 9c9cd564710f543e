"""The SQLite file of a cache folder's index: who uses it when, and whether it is that of the files beside it.

Beside it lies a mark. Whoever opens the index holds the mark's lock; its text names the index, its last change and the
start of the machine. So an index that is lost, torn, another one, or older than the files (a copy that somebody put
back, or what a power cut left) is known before it is believed, and is made again of the files.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ragcache.forks import carry_over
from ragcache.mounts import MOUNTS, network_file_system
from ragcache.private import FILE, private_file, private_folder
from ragcache.store.index_tables import SCHEMA, VERSION
from ragcache.store.layout import FolderLayout

BUSY_S = 60.0  # that a change waits for those of other processes
_ENDING_S = 1.0  # that a program's end waits for others
_TRIES = 3  # somebody may put another index into its place just as it is opened
BOOT = Path("/proc/sys/kernel/random/boot_id")
_TORN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
T = TypeVar("T")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class _Connected:
    connection: sqlite3.Connection
    inode: int


class IndexFile:
    """Threads may share it. Reading waits for nobody who writes; of those who write one goes at a time.

    On a network file system there is no write-ahead log: reading waits for a commit there, not for what leads to it.
    """

    def __init__(
        self, layout: FolderLayout, rebuild: Callable[[sqlite3.Connection], list[Path]], mounts: Path = MOUNTS
    ):
        """Opens nothing yet. `rebuild` makes the rows those of the files, inside a transaction, and returns files that
        have no use after that.
        """
        self._layout, self._rebuild = layout, rebuild
        self._path = layout.index  # asked for at each look-up
        self._shared = bool(network_file_system(layout.root, mounts))
        self._begin()
        carry_over(self)

    def _begin(self) -> None:
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer: _Connected | None = None
        self._reader: _Connected | None = None

    def read(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """Raises sqlite3.Error and OSError, as does `change`."""
        with self._reading:
            for left in reversed(range(_TRIES)):
                try:
                    self._reader = self._current(self._reader, reading=True)
                    return self._reader.connection.execute(sql, values).fetchall()
                except sqlite3.DatabaseError as error:
                    held, self._reader = self._reader, None
                    self._give_up(held, error, left)
        raise AssertionError("it came back or was raised")

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One step for all threads and processes: what `work` does is there after it, or not at all. It is done again
        where the index turns out to be torn.
        """
        with self._writing:
            for left in reversed(range(_TRIES)):
                try:
                    self._writer = self._current(self._writer)
                    return self._transact(self._writer.connection, work)
                except sqlite3.DatabaseError as error:
                    held, self._writer = self._writer, None
                    self._give_up(held, error, left)
        raise AssertionError("it came back or was raised")

    def note(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """A change that an index may lack: none is made for it where the folder is gone."""
        with self._writing:
            if self._inode() is not None:
                self._writer = self._current(self._writer)
                self._transact(self._writer.connection, work, marked=False)

    def renew(self) -> None:
        """Make the rows those of the files."""
        _unlink(self.change(self._rebuild))

    def end(self, last: Callable[[sqlite3.Connection], None]) -> None:
        """Do this, and close; neither where somebody is in the way."""
        locks = [lock for lock in (self._writing, self._reading) if lock.acquire(timeout=_ENDING_S)]
        if len(locks) == 2:
            with suppress(sqlite3.Error, OSError):
                if self._writer is not None and self._inode() == self._writer.inode:
                    self._writer.connection.execute(f"PRAGMA busy_timeout = {int(_ENDING_S * 1000)}")
                    self._transact(self._writer.connection, last, marked=False)
            self._close()
        for lock in locks:
            lock.release()

    def before_fork(self) -> None:
        """SQLite's connections belong to the process that opened them."""
        self._held = [lock for lock in (self._writing, self._reading) if lock.acquire(timeout=BUSY_S)]
        if len(self._held) == 2:
            self._close()

    def after_fork(self) -> None:
        for lock in self._held:
            lock.release()

    def after_fork_in_child(self) -> None:
        self._parents = self._writer, self._reader  # not even closed, where somebody was using them
        self._begin()

    def _close(self) -> None:
        for held in (self._writer, self._reader):
            if held is not None:
                held.connection.close()
        self._writer = self._reader = None

    def _current(self, held: _Connected | None, reading: bool = False) -> _Connected:
        """Somebody may have deleted the index under those who use it, or put another one into its place. One that is
        gone serves readers until a change makes it again.
        """
        if held is not None:
            inode = self._inode()
            if inode == held.inode or (inode is None and reading):
                return held
            held.connection.close()
        return self._opened()

    def _give_up(self, held: _Connected | None, error: sqlite3.DatabaseError, left: int) -> None:
        """A connection, and the index that is torn; then it is tried again. Raises the last error."""
        if held is not None:
            held.connection.close()
        if not left:
            raise error
        if _torn(error):
            with self._alone():
                if held is None or self._inode() == held.inode:
                    self._discard()

    def _opened(self) -> _Connected:
        with self._alone() as mark, ExitStack() as failed:
            connection = self._found(mark) or self._made()
            failed.callback(connection.close)
            connection.execute(f"PRAGMA journal_mode = {'DELETE' if self._shared else 'WAL'}")
            connection.execute("PRAGMA synchronous = NORMAL")  # without a file's sync at each commit
            if self._marked(connection) != mark:
                _unlink(self._transact(connection, self._rebuild))
            failed.pop_all()
            return _Connected(connection, self._path.stat().st_ino)

    def _found(self, mark: bytes) -> sqlite3.Connection | None:
        """The index that is there, if it can be relied on or at least be mended."""
        if self._inode() is None:
            return None
        with ExitStack() as bad:
            connection = _connect(self._layout.index)
            bad.callback(connection.close)
            try:
                version = connection.execute("PRAGMA user_version").fetchone()
                if version == (VERSION,) and (self._marked(connection) == mark or _is_whole(connection)):
                    bad.pop_all()
                    return connection
            except sqlite3.DatabaseError as error:
                if not _torn(error):
                    raise
        return None

    def _made(self) -> sqlite3.Connection:
        """An empty index, with the pins of the old one where they can be read: no file tells of them."""
        pins: Rows = []
        if self._inode() is not None:
            with suppress(sqlite3.Error), closing(_connect(self._layout.index)) as old:
                pins = old.execute("SELECT digest, owner, expires FROM pins").fetchall()
        self._discard()
        private_file(self._layout.index)
        with ExitStack() as failed:
            connection = _connect(self._layout.index)
            failed.callback(connection.close)
            connection.execute("PRAGMA synchronous = OFF")  # what a power cut leaves of it is made again
            connection.executescript(SCHEMA)
            connection.executemany("INSERT INTO pins VALUES (?, ?, ?)", pins)
            failed.pop_all()
        return connection

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._layout.index.with_name(self._layout.index.name + suffix).unlink(missing_ok=True)

    def _transact(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], marked: bool = True
    ) -> T:
        connection.execute("BEGIN IMMEDIATE")
        try:
            done = work(connection)
            if marked:
                connection.execute("UPDATE folder SET revision = revision + 1")
                self._mark(self._marked(connection))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
        return done

    def _marked(self, connection: sqlite3.Connection) -> bytes:
        return mark_of(connection, self._inode(), self._shared)

    def _mark(self, text: bytes) -> None:
        """Before the commit: who is killed in between leaves an index that is looked over. So does a full disk."""
        with suppress(OSError):
            fd = os.open(self._layout.mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE)
            try:
                os.pwrite(fd, text, 0)
            finally:
                os.close(fd)

    @contextmanager
    def _alone(self) -> Iterator[bytes]:
        """Among all who open the index; gives the mark."""
        private_folder(self._layout.root)
        # A descriptor of its own each time: flock then holds between threads too.
        fd = os.open(self._layout.mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield os.pread(fd, 128, 0)
        finally:
            # Said explicitly, because a child forked meanwhile has the descriptor too and would keep the lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _inode(self) -> int | None:
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return None


def look(layout: FolderLayout, sql: str, values: Sequence[Any] = ()) -> Rows | None:
    """For those who change nothing: nothing is made, not even the files that SQLite has beside an index in use. None
    where there is no index, or not that of the folder as it is.
    """
    try:
        used = layout.index.with_name(layout.index.name + "-wal").exists()
        mark, inode = layout.mark.read_bytes(), layout.index.stat().st_ino
        with closing(_connect(layout.index, "ro" if used else "ro&immutable=1")) as connection:
            connection.execute("BEGIN")
            if mark_of(connection, inode, bool(network_file_system(layout.root))) != mark:
                return None
            rows = connection.execute(sql, values).fetchall()
        return rows if layout.mark.read_bytes() == mark else None
    except (sqlite3.Error, OSError):
        return None


def mark_of(connection: sqlite3.Connection, inode: int | None, shared: bool) -> bytes:
    """Of one length, so that it is written in one piece."""
    (revision,) = connection.execute("SELECT revision FROM folder").fetchone()
    boot = ""  # each of several machines has another one
    if not shared:
        with suppress(OSError):
            boot = BOOT.read_text().strip()
    return f"{revision:020} {inode or 0:020} {boot:36.36}\n".encode()


def _connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _is_whole(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",))


def _torn(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _TORN or "no such table" in str(error)
