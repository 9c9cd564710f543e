"""A database beside a cache folder's index: what its processes keep about a bucket, for one another and for later."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ragcache.errors import StoreError
from ragcache.host import carry_over, network_file_system, private_file

FILE = "remote.sqlite"
_WAIT_S = 10.0  # for another process's transaction, of some milliseconds


class FolderFile:
    """Some tables of it. Threads and processes may share it."""

    def __init__(self, root: Path, *tables: str):
        """`tables`: what makes each, where it is not there. Raises StoreError."""
        self._path = root / FILE
        self._change = threading.Condition()  # whoever has it asks for no other lock
        self._within, self._forking = 0, False  # threads that are within SQLite; whether others wait to come in
        carry_over(self)
        with self._open() as connection:
            mode = "DELETE" if network_file_system(root) else "WAL"
            connection.execute(f"PRAGMA journal_mode = {mode}")
            for table in tables:
                connection.execute(table)

    def before_fork(self) -> None:
        """No thread is within SQLite then: the child would wait for ever for what that thread had locked in there."""
        self._change.acquire()  # nobody keeps it
        self._forking = True
        self._change.wait_for(lambda: not self._within, _WAIT_S)

    def after_fork(self) -> None:
        if self._forking:  # or it was made amid the fork of another thread
            self._forking = False
            self._change.notify_all()
            self._change.release()

    def after_fork_in_child(self) -> None:
        self._change, self._within, self._forking = threading.Condition(), 0, False

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._change:
            self._change.wait_for(lambda: not self._forking, _WAIT_S)
            self._within += 1
        try:
            yield
        finally:
            with self._change:
                self._within -= 1
                self._change.notify_all()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """For one transaction: no connection gets into a child of a fork."""
        try:
            private_file(self._path)
            with self._using(), closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as connection:
                connection.execute("PRAGMA synchronous = NORMAL")
                with connection:
                    yield connection
        except (OSError, sqlite3.Error, ValueError) as error:
            raise StoreError(
                f"cannot keep what the bucket is to be told in {self._path}: {error}. Free some space, or delete it: "
                "then uploads that wait are left out, and deletions that wait are not done in the bucket"
            ) from error
