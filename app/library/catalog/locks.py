"""One process at a time works on a collection: it ingests, removes, embeds anew or computes KV.

The lock is where the catalog is. Beside an SQLite file it is a file. In PostgreSQL it is an advisory lock, which keeps
out the processes of all machines; a connection of its own holds it, since one from the pool would give it to whoever
comes next. Either ends with its process.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import Connection

from app.errors import CatalogError, CollectionBusy
from app.library.catalog.database import HELD, Database
from app.library.catalog.failures import catalog_failures
from app.library.catalog.records import Collection
from ragcache.host import FILE, private_folder

LOCKS = "locks"
# Seconds to wait for another process that copies and upgrades a large database.
PATIENCE = 600.0
LOOK_S = 60  # for which one may say nothing within its last look
LOOKS_S = 300  # for which others wait for it
OTHERS = 256  # files that a process has open beside locks
Waiting = Callable[[str], None]  # told whom a lock is waited for
Holder = Callable[[Collection], str]
_NAMESPACE = 0x52414743 << 32  # "RAGC", above the number of the collection; without one it is of all
# When a machine is gone, the server should notice within two minutes, and not when its system does, after two hours.
_ALIVE = {"tcp_keepalives_idle": 60, "tcp_keepalives_interval": 20, "tcp_keepalives_count": 3}
# What a server may end sessions by, which would lose a lock that is held, or the wait for one.
_UNLIMITED = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_session_timeout', 'statement_timeout', "
    "'idle_in_transaction_session_timeout', 'transaction_timeout', 'lock_timeout')"
)
_HELD = (
    "FROM pg_locks AS held JOIN pg_stat_activity AS activity USING (pid) "
    "WHERE held.locktype = 'advisory' AND held.granted AND activity.datname = current_database() "
    "AND (held.classid::bigint << 32 | held.objid::bigint) = %s AND held.objsubid = 1"
)
_BY_WHOM, _BY_SESSION = f"SELECT activity.application_name {_HELD}", f"SELECT 1 {_HELD} AND held.pid = %s"


@contextmanager
def held(
    database: Database, collections: tuple[Collection, ...], waiting: Waiting | None, holder: Holder
) -> Iterator[None]:
    """The locks of collections. While somebody else has one: wait, after telling `waiting`, or raise CollectionBusy.

    `holder` tells who has the lock of an SQLite catalog.
    """
    wanted = sorted(collections, key=lambda one: one.id)  # so that two never wait for each other
    with _files(database, wanted, waiting, holder) if database.path else _rows(database, wanted, waiting):
        yield


@contextmanager
def schema_alone(database: Database) -> Iterator[None]:
    """No other process of this machine changes the schema of an SQLite file; PostgreSQL has a lock for that."""
    if database.path is None:
        yield
        return
    lock = database.path.parent / LOCKS / f"{database.path.name}.lock"
    with catalog_failures(database.where, OSError):
        private_folder(lock.parent)
        try:
            held = FileLock(lock, mode=FILE).acquire(timeout=PATIENCE)
        except Timeout:
            raise CatalogError(f"another process is upgrading {database.where}: try again when it is done") from None
    with held:
        yield


def lock_file(database: Database, collection_id: int) -> Path:
    """Of an SQLite catalog; the number outlives a renaming and an embedding anew."""
    assert database.path is not None
    return database.path.parent / LOCKS / f"{database.path.name}.{collection_id}.lock"


def discard(database: Database, collection_id: int) -> None:
    """Of a collection that is gone. Whoever waits for the lock finds out then; its number is never given again."""
    if database.path is not None:
        with catalog_failures(database.where, OSError):
            lock_file(database, collection_id).unlink(missing_ok=True)


@contextmanager
def _files(
    database: Database, collections: Sequence[Collection], waiting: Waiting | None, holder: Holder
) -> Iterator[None]:
    _make_room(len(collections))
    with ExitStack() as stack:
        for collection in collections:
            path = lock_file(database, collection.id)
            with catalog_failures(str(path), OSError):
                private_folder(path.parent)
                lock = FileLock(path, mode=FILE)
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    _wait(collection, waiting, holder(collection))
                    lock.acquire()
                stack.callback(lock.release)
        yield


def _make_room(files: int) -> None:
    """For so many that are open at once, as far as the system lets this process have them."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files + OTHERS if most == resource.RLIM_INFINITY else min(files + OTHERS, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


@contextmanager
def _rows(database: Database, collections: Sequence[Collection], waiting: Waiting | None) -> Iterator[None]:
    """Of any number of collections by one connection, of which a server has not many."""
    with ExitStack() as stack:
        with catalog_failures(database.where):
            connection = stack.enter_context(closing(database.apart()))
            connection.execute(_UNLIMITED)
            for name, value in {"application_name": _own_name(), **_ALIVE}.items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
            # A pooler gives its clients numbers of its own, so the driver may know another.
            (session,) = connection.execute("SELECT pg_backend_pid()").fetchone()
            for collection in collections:
                key = _NAMESPACE + collection.id
                if not _value(connection, "SELECT pg_try_advisory_lock(%s)", key):
                    other = _value(connection, _BY_WHOM, key) or "of another user"
                    _wait(collection, waiting, f"another process ({other})")
                    connection.execute("SELECT pg_advisory_lock(%s)", (key,))
                database.held[collection.id] = session
                stack.callback(database.held.pop, collection.id)
        yield


def check_held(connection: Connection, collection: Collection) -> None:
    """In a change by a process that holds the collection's lock. Raises CatalogError where the server has ended that
    session, as it does when it is started again: another process may be working on the collection since.
    """
    session = connection.get_execution_options()[HELD].get(collection.id)
    if session is not None:
        found = connection.exec_driver_sql(_BY_SESSION, (_NAMESPACE + collection.id, session))
        if found.one_or_none() is None:
            raise CatalogError(
                f"the server has ended the session that held the lock of collection {collection.name!r}, and nothing "
                "of this change was written: run the command again"
            )


def last_look(connection: Connection) -> None:
    """From here to its end a transaction of PostgreSQL sees what all others have done that looked before. It must be
    short: they wait for its end, longer than for other changes, since what they look for is committed and cannot be
    taken back. A process that goes on no more, stopped or on a machine that sleeps, is ended by the server.
    """
    connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{LOOK_S}s'")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOOKS_S}s'")
    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_NAMESPACE,))


def _wait(collection: Collection, waiting: Waiting | None, holder: str) -> None:
    busy = f"{holder} is working on collection {collection.name!r}"
    if waiting is None:
        raise CollectionBusy(f"{busy}: try again when it is done")
    waiting(f"{busy}: waiting for it")


def _own_name() -> str:
    """As the server shows it to others; it cuts names off at 63 bytes."""
    return f"ragcache, process {os.getpid()} on {socket.gethostname()}"


def _value(connection: Any, query: str, key: int) -> Any:
    row = connection.execute(query, (key,)).fetchone()
    return row and row[0]
