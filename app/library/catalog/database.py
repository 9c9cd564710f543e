"""A connection to the database of the catalog: which one, how it is set up, and its transactions."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakSet

from sqlalchemy import URL, Column, Connection, Engine, TypeDecorator, create_engine, event, make_url
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import ArgumentError

from app.errors import CatalogError
from app.library.catalog.failures import LATER, catalog_failures
from app.library.catalog.kept_rows import kept_rows
from app.settings import Settings, expanded
from ragcache.host import MOUNTS, carry_over, network_file_system

Item = TypeVar("Item")
FILE = "catalog.sqlite"
MOMENT_S, TURNS = 2.0, 20
HASTE_S = 1.0  # what is not worth a wait waits so long for a row of PostgreSQL, which others who add to it hold briefly
# Each thread has a connection, or one that waits for nobody's row, or reads little, would wait for those that do not.
KEPT = 16  # that stay open; others are closed when they are given back
BESIDE = 80  # threads of a server beside those that answer: 32 for files and keys, 40 of its routes, and those behind
BATCH = 5000  # values of one statement: SQLite takes 32,766, PostgreSQL 65,535
DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
DRIVERS |= {driver: driver for driver in DRIVERS.values()}
_ASIDE = "a database URL looks like sqlite:////absolute/path or postgresql://user:password@host:5432/database"
_ANY = DefaultDialect()  # all types of ours mean the same in each
_WRITING, _PATIENCE, HELD = "ragcache_writing", "ragcache_patience", "ragcache_held"


def database_url(settings: Settings) -> URL:
    """Where the catalog is: of links, where its file itself is, with all that lies beside it. Raises CatalogError for a
    URL that no driver here understands, and ConfigError for a home folder that is not there.
    """
    if settings.database_url is None:
        return URL.create("sqlite", database=os.path.realpath(settings.data_dir / FILE))
    try:
        url = make_url(settings.database_url.get_secret_value())
    except (ArgumentError, ValueError):
        # Neither the URL nor the error is shown: what cannot be parsed may have its password anywhere.
        raise CatalogError(f"RAGCACHE_DATABASE_URL cannot be parsed: {_ASIDE}") from None
    if url.drivername not in DRIVERS:
        raise CatalogError(f"RAGCACHE_DATABASE_URL has the driver {url.drivername!r}: choose sqlite or postgresql")
    url = url.set(drivername=DRIVERS[url.drivername])
    if not url.database or url.database == ":memory:":
        raise CatalogError(f"RAGCACHE_DATABASE_URL names no database: {_ASIDE}")
    if url.drivername == "sqlite":
        return url.set(database=os.path.realpath(expanded(Path(url.database))))
    return url


def location(url: URL) -> str:
    """The database in words, without user, password and options."""
    if url.drivername == "sqlite":
        return str(url.database)
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{url.host or ''}{port}/{url.database}"


def refuse_network(file: Path, mounts: Path = MOUNTS) -> None:
    """Raises CatalogError where the folder of an SQLite file is on a network file system: its locks and its log cannot
    be relied on there.
    """
    kind = network_file_system(Path(os.path.realpath(file)).parent, mounts)
    if kind:
        raise CatalogError(
            f"the catalog {file} would be on a network file system ({kind}), where SQLite loses data when two machines "
            "or a broken connection come together: choose a local folder with RAGCACHE_DATA_DIR, or PostgreSQL with "
            "RAGCACHE_DATABASE_URL. A catalog that is there already can be moved while no program uses it"
        )


class Database:
    """An engine and its transactions. Safe to share between threads; after a fork each process connects for itself.

    Reading sees one moment of committed data, and never waits for writers. Writing takes its lock at once:
    a transaction that reads first and then writes could otherwise fail in the middle, when somebody else wrote then.
    """

    def __init__(self, url: URL, busy_seconds: float = 30.0, mounts: Path = MOUNTS, threads: int = BESIDE):
        """Connects to nothing yet. Raises CatalogError for an SQLite file on a network file system."""
        self.url = url
        if self.path is not None:
            refuse_network(self.path, mounts)
        self.busy_seconds = busy_seconds
        self._engine = _create(url, busy_seconds, threads)
        # SQLite lets in whoever happens to ask in the right moment: one thread of many could wait until it gives up.
        self._turn = RLock()
        self.held: dict[int, int] = {}  # sessions of PostgreSQL with locks of collections: see locks.py
        self._writer = self._engine.execution_options(**{_WRITING: True, HELD: self.held})
        snapshot = {} if self.path else {"isolation_level": "REPEATABLE READ"}
        self._reader = self._engine.execution_options(**snapshot)
        self._sessions = WeakSet[Any]()  # connections to PostgreSQL
        if self.path is None:
            event.listen(self._engine, "connect", partial(_note, self._sessions))
        carry_over(self)

    @property
    def where(self) -> str:
        return location(self.url)

    @property
    def path(self) -> Path | None:
        """The file of an SQLite database."""
        assert self.url.database is not None
        return Path(self.url.database) if self.url.drivername == "sqlite" else None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with catalog_failures(self.where), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all of it is there after the block, or nothing."""
        turn = nullcontext() if self.path is None else self._in_turn()
        with catalog_failures(self.where), turn, self._writer.begin() as connection:
            yield connection

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Of the threads of this process, whose changes end. Raises CatalogError where they keep one out for long."""
        turn = self._turn
        if not turn.acquire(timeout=TURNS * self.busy_seconds):
            raise CatalogError(f"cannot use the catalog {self.where}: this program is writing much to it. {LATER}")
        try:
            yield
        finally:
            turn.release()

    @contextmanager
    def writing_at_once(self) -> Iterator[Connection]:
        """The same for what is not worth a wait. Raises CatalogError where others write, an ingest half a minute."""
        if self.path is None:
            with self.writing() as connection:  # which waits for nobody but who writes the same row
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(HASTE_S * 1000)}")  # ms
                yield connection
            return
        with catalog_failures(self.where), ExitStack() as turn:
            if not self._turn.acquire(blocking=False):
                raise CatalogError(f"cannot use the catalog {self.where}: somebody is writing to it")
            turn.callback(self._turn.release)
            hasty = self._writer.execution_options(**{_PATIENCE: self.busy_seconds})
            yield turn.enter_context(hasty.begin())

    def shorten_log(self) -> None:
        """Give the disk back what a large transaction took of it in the log of SQLite, unless somebody writes, or reads
        in it for longer than a moment.
        """
        turn = self._turn
        if self.path is None or not turn.acquire(timeout=self.busy_seconds):
            return
        with ExitStack() as own:
            own.callback(turn.release)
            own.enter_context(catalog_failures(self.where))
            cursor = own.enter_context(self._engine.connect()).connection.cursor()
            # The next transaction tells of a disk that is full.
            with _waiting(cursor, MOMENT_S, self.busy_seconds), suppress(sqlite3.OperationalError):
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A writing transaction in which tables can be dropped and made anew; it keeps their rows or nothing happens.

        SQLite deletes all rows of a table that is dropped, and with foreign keys on what hangs on them too. It can turn
        them off only between transactions.
        """
        if self.path is None:
            with self.writing() as connection:
                yield connection
            return
        with catalog_failures(self.where), self._in_turn(), self._writer.connect() as connection:
            connection.connection.cursor().execute("PRAGMA foreign_keys = OFF")
            try:
                with connection.begin(), kept_rows(connection, self.where):
                    yield connection
            finally:
                connection.connection.cursor().execute("PRAGMA foreign_keys = ON")

    def apart(self) -> Any:
        """A connection to PostgreSQL that belongs to the caller alone, each of its statements a transaction."""
        assert self.path is None
        arguments, options = self._engine.dialect.create_connect_args(self._engine.url)
        with self._turn:  # so that no fork comes in between
            connection = self._engine.dialect.connect(*arguments, **options)
            self._sessions.add(connection)
        connection.autocommit = True
        return connection

    def before_fork(self) -> None:
        """A child must not inherit connections: it would talk into its parent's, and lock in its parent's name."""
        self._turn.acquire(timeout=self.busy_seconds)
        self._engine.pool.dispose()  # those that nobody is using

    def after_fork(self) -> None:
        """In the parent."""
        with suppress(RuntimeError):  # it was not got
            self._turn.release()

    def after_fork_in_child(self) -> None:
        self._turn = RLock()
        for session in self._sessions:  # or the server would keep it, and its locks, when the parent has ended
            _let_go(session)
        self._sessions.clear()
        self._engine.dispose(close=False)  # what another thread was using is still the parent's

    def close(self) -> None:
        self._engine.dispose()


class DatabasePart:
    """What a catalog does with some of its tables."""

    def __init__(self, database: Database):
        self._database = database


def batches(items: Iterable[Item], size: int = BATCH) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def stored(column: Column[Any], value: Any) -> Any:
    """As it lies in the database, for who writes it there as it is."""
    kind = column.type
    return kind.process_bind_param(value, _ANY) if isinstance(kind, TypeDecorator) else value


def _note(sessions: WeakSet[Any], session: Any, record: Any) -> None:
    sessions.add(session)


def _let_go(session: Any) -> None:
    """Of what a parent has: closing it would tell the server, and its number would then be another file's."""
    if not session.closed:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, session.fileno(), inheritable=False)
        os.close(nothing)


def _create(url: URL, busy_seconds: float, threads: int) -> Engine:
    # The texts of users do not belong into error messages and logs.
    shared: dict[str, Any] = {"hide_parameters": True, "pool_timeout": busy_seconds, "pool_size": min(KEPT, threads)}
    shared["max_overflow"] = max(0, threads - KEPT)
    if url.drivername == "sqlite":
        engine = create_engine(url, connect_args={"timeout": busy_seconds}, **shared)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    timeout = f"-c lock_timeout={int(busy_seconds * 1000)}"
    given = url.query.get("options", "")
    url = url.update_query_dict({"options": f"{given} {timeout}".strip(), "client_encoding": "utf8"})
    return create_engine(
        url.update_query_dict({"connect_timeout": "10"}) if "connect_timeout" not in url.query else url,
        pool_pre_ping=True,  # a server that was started again has forgotten the pooled connections
        **shared,
    )


def _set_up_sqlite(connection: sqlite3.Connection, record: Any) -> None:
    # The driver would open transactions by itself, and only before the first change.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # In WAL mode NORMAL survives a killed process but may lose the last commits in a power cut. An ingest deletes KV
    # and tells its user "done" after a commit, so a commit must last: FULL, one fsync each.
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    # Past SQLAlchemy, which takes ten times as long for a statement; each question begins several transactions.
    options, cursor = connection.get_execution_options(), connection.connection.cursor()
    patience = options.get(_PATIENCE)
    if patience is None:
        cursor.execute("BEGIN IMMEDIATE" if options.get(_WRITING, False) else "BEGIN")
        return
    with _waiting(cursor, 0.0, patience):
        cursor.execute("BEGIN IMMEDIATE")


@contextmanager
def _waiting(cursor: Any, seconds: float, usually: float) -> Iterator[None]:
    """For others who use the file: so long in the block."""
    cursor.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
    try:
        yield
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {int(usually * 1000)}")
