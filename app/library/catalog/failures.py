"""What databases say when they fail, in words that tell what to do. No message shows a password."""

from __future__ import annotations

import errno
import sqlite3
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.errors import CatalogError, NotFound

DISK_FULL = "its disk is full. Free some space and try again: nothing is lost"
READ_ONLY = "it cannot be written. Make the file and its folder writable, or choose another with RAGCACHE_DATA_DIR"
LATER = "Try again when that is done"
LOCKED = f"another process keeps it locked. {LATER}"
DAMAGED = "its file is damaged. `ragcache db restore FILE` puts a copy in its place: see the folder `backups` beside it"
GONE = "what this belongs to is not there: somebody has deleted it meanwhile"
DAMAGE = (zlib.error, JSONDecodeError, UnicodeDecodeError)  # of values that no database looks into: see tables.py
# By the primary name of the result code; the extended ones start with it.
SQLITE: Mapping[str, str] = {
    "SQLITE_NOTADB": "this file is no SQLite database. Move it away, or choose another with RAGCACHE_DATABASE_URL",
    "SQLITE_FULL": DISK_FULL,
    "SQLITE_BUSY": LOCKED,
    "SQLITE_LOCKED": LOCKED,
    "SQLITE_READONLY": READ_ONLY,
    "SQLITE_CANTOPEN": "it cannot be opened. Check that its folder is there, and readable and writable for you",
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_CONSTRAINT_FOREIGNKEY": GONE,
    "SQLITE_IOERR": "reading or writing its file failed. Check the disk that it is on",
}
PASSWORD = "user or password are wrong. Check RAGCACHE_DATABASE_URL"
MISSING = "the server has no such database. Create it with `createdb NAME`, or check RAGCACHE_DATABASE_URL"
AWAY = "the server does not answer. Check that it runs, and host and port in RAGCACHE_DATABASE_URL"
RIGHTS = "the user of RAGCACHE_DATABASE_URL may not do this. Grant it the rights, or name another user"
# By SQLSTATE, or the class of it.
POSTGRESQL: Mapping[str, str] = {
    "28": PASSWORD,
    "3D000": MISSING,
    "42501": RIGHTS,
    "25006": "it is read-only. Name the primary server in RAGCACHE_DATABASE_URL",
    "23503": GONE,
    "53100": DISK_FULL,
    "53300": "the server has no connection left. Close some, or raise its max_connections",
    "40P01": LOCKED,
    "55P03": LOCKED,
    "57P": AWAY,
    "08": AWAY,
}
# Before a session there is no SQLSTATE, only what the server and the network said.
CONNECTING: Mapping[str, str] = {
    "password authentication failed": PASSWORD,
    "no password supplied": PASSWORD,
    'role "': PASSWORD,
    "no pg_hba.conf entry": "the server does not let this user in from here. Change its pg_hba.conf",
    "too many clients": POSTGRESQL["53300"],
    "does not exist": MISSING,
    "refused": AWAY,
    "timeout": AWAY,
    "resolve host": AWAY,
    "translate host": AWAY,
    "no such file or directory": AWAY,
}


@contextmanager
def catalog_failures(where: str, *more: type[Exception]) -> Iterator[None]:
    """Failures of the database inside the block become a CatalogError about `where`, a name without a password; that
    what a row belongs to is gone is none of the database's, and NotFound.
    """
    failures: tuple[type[Exception], ...] = (
        *(DBAPIError, PoolTimeout, sqlite3.Error, OverflowError),  # the last of an id that no database can be asked for
        *(*DAMAGE, *_postgresql_errors(), *more),
    )
    try:
        yield
    except failures as error:
        if (reason := _reason(error)) == GONE:
            raise NotFound(GONE) from error
        raise CatalogError(f"cannot use the catalog {where}: {reason}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, DBAPIError) and isinstance(error.orig, Exception):
        error = error.orig
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "")
        known = [reason for code, reason in SQLITE.items() if name.startswith(code)]
    elif isinstance(error, _postgresql_errors()):
        known = _of_postgresql(error)
    elif isinstance(error, OSError):
        known = _of_system(error)
    elif isinstance(error, DAMAGE):
        known = [DAMAGED]
    else:
        known = [LOCKED] if isinstance(error, PoolTimeout) else []
    return known[0] if known else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _postgresql_errors() -> tuple[type[Exception], ...]:
    """Of the driver, where it is in use: most catalogs are SQLite files."""
    driver = sys.modules.get("psycopg")
    return () if driver is None else (driver.Error,)


def _of_postgresql(error: Exception) -> list[str]:
    state: str | None = getattr(error, "sqlstate", None)
    if state:
        return [reason for code, reason in POSTGRESQL.items() if state.startswith(code)]
    said = str(error).lower()
    return [reason for words, reason in CONNECTING.items() if words in said]


def _of_system(error: OSError) -> list[str]:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return [DISK_FULL]
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return [READ_ONLY]
    return []
