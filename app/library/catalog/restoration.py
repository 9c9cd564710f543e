"""A copy put in the place of an SQLite catalog, so that a kill at any point leaves the old one or the new one whole.

1. The copy is copied once more, beside the catalog, and that is checked and made ready.
2. The log of the old catalog goes into its file, which SQLite does only when nobody else has it open. A log that stays
   would be replayed into whatever file takes the name.
3. The old file gets a second name among the backups.
4. The new file takes the first name, in one step.

Restored collections have new uids. Numbers that were given to chunks after the copy was made are given again, and an
index of that time would take the new chunks for those; by their uid, all indexes are made anew.

A key that was revoked since the copy was made stays revoked. Jobs that waited then have failed: they may be done, and
what clients had sent for them gone.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

from app.errors import CatalogError
from app.library import UID
from app.library.catalog.copies import (
    REPLACED,
    beside,
    check_sound,
    companions,
    drop_backups,
    existing,
    give_to_owner,
    in_use,
    new_backup,
    sqlite_file,
    unused,
    write_copy,
)
from app.library.catalog.database import Database
from app.library.catalog.failures import catalog_failures
from app.library.catalog.locks import schema_alone
from app.library.catalog.schema import inspect_schema
from ragcache.host import FILE, put, sync


@dataclass(frozen=True)
class Restored:
    revision: str  # older than the newest where the copy is: it is upgraded when it is used
    kept: Path | None  # what was replaced
    uids: tuple[str, ...]  # of what was replaced: names of index folders that nobody uses now


def restore(database: Database, source: Path, keep: int) -> Restored:
    """Raises CatalogError when the copy is not sound or no catalog, or while others use the catalog.

    Of replaced catalogs the newest `keep` stay, at least this one. `database` must not have been used.
    """
    path, source = sqlite_file(database, "restore"), Path(os.path.realpath(source))
    if not source.is_file():
        raise CatalogError(f"there is no file {source}: nothing was changed")
    if path.exists() and source.samefile(path):
        raise CatalogError(f"{source} is the catalog itself: name a copy of it")
    with schema_alone(database), catalog_failures(str(path), OSError), beside(path) as fresh:
        with catalog_failures(str(source), OSError):
            write_copy(source, fresh)
        check_sound(fresh, source)
        revision = _revision(fresh, source)
        _renew(fresh, source)
        uids, revoked = _settle(path)
        _revoke(fresh, revoked)
        kept = _swap(path, fresh)
        drop_backups(path, REPLACED, max(1, keep), kept)
    return Restored(revision, kept, tuple(sorted(uids)))


def _revision(fresh: Path, source: Path) -> str:
    database = Database(URL.create("sqlite", database=str(fresh)))
    try:
        revision = inspect_schema(database).revision
    except CatalogError as error:
        raise CatalogError(str(error).replace(str(fresh), str(source))) from error
    finally:
        database.close()
    if revision is None:
        raise CatalogError(f"{source} is no catalog of ragcache: name a file that `ragcache db backup` has made")
    return revision


def _renew(fresh: Path, source: Path) -> None:
    """Give all collections new uids. Whatever ran when the copy was made runs no more."""
    with catalog_failures(str(source)), closing(existing(fresh)) as connection, connection:
        connection.execute("UPDATE collections SET uid = lower(hex(randomblob(16)))")
        connection.execute("UPDATE ingest_runs SET state = 'interrupted' WHERE state = 'running'")
        if _has(connection, "jobs"):
            connection.execute(
                "UPDATE jobs SET state = 'failed', error = ?, lease = NULL, leased_until = NULL, finished = created "
                "WHERE state IN ('queued', 'running')",
                ("the catalog was restored from a copy that was made before this was done: try it again",),
            )


def _revoke(fresh: Path, revoked: Mapping[str, str]) -> None:
    """Keys that the old catalog has revoked, at the times it says."""
    with closing(existing(fresh)) as connection, connection:
        if revoked and _has(connection, "keys"):
            change = "UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL"
            connection.executemany(change, [(moment, key_id) for key_id, moment in revoked.items()])


def _has(connection: sqlite3.Connection, table: str) -> bool:
    found = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
    return bool(connection.execute(found, (table,)).fetchone()[0])


def _settle(path: Path) -> tuple[set[str], dict[str, str]]:
    """Bring the log of the old catalog into its file -> its uids, and when which of its keys were revoked. One that is
    damaged is left as it is.
    """
    if not path.exists():
        return set(), {}
    try:
        with closing(existing(path, timeout=0)) as connection:
            if connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0] != "delete":
                raise in_use(path)
            found = connection.execute("SELECT CAST(uid AS BLOB) FROM collections WHERE uid IS NOT NULL").fetchall()
            uids = {uid for (raw,) in found if UID.fullmatch(uid := raw.decode(errors="replace"))}
            revoked = "SELECT id, revoked FROM keys WHERE revoked IS NOT NULL"
            return uids, dict(connection.execute(revoked)) if _has(connection, "keys") else {}
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")  # the module's own errors have none
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise in_use(path) from error
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR")):
            return set(), {}
        raise


def _swap(path: Path, fresh: Path) -> Path | None:
    """Put the new file in the place of the old one -> where that is kept."""
    kept = new_backup(path, REPLACED)
    with unused(path) as fd:
        if fd is not None:
            _give_rights(fresh, path, os.fstat(fd))
            keep_file(fd, path, kept)
        for companion in companions(path):  # of a damaged catalog, or of one that is not there
            if companion.name.endswith("-shm"):
                companion.unlink(missing_ok=True)  # SQLite makes it from the log
            elif companion.exists():
                companion.rename(kept.with_name(kept.name + companion.name.removeprefix(path.name)))
        put(fresh, path)
    return None if fd is None else kept


def _give_rights(fresh: Path, path: Path, there: os.stat_result) -> None:
    """Those that the old file has: whoever could use it can use the new one."""
    try:
        os.chown(fresh, there.st_uid, there.st_gid)
    except PermissionError as error:
        raise CatalogError(
            f"{path} belongs to a user or a group that you may give no files to, and others could not use it any more: "
            "restore it as its owner, or as root"
        ) from error
    fresh.chmod(stat.S_IMODE(there.st_mode))


def keep_file(fd: int, path: Path, kept: Path) -> None:
    """A second name for the file, or a copy of it where the file system has no such names."""
    try:
        os.link(path, kept)
    except OSError:
        # To close any other descriptor of the file would give up the lock on it.
        with os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE), "wb") as copy:
            done = 0
            while block := os.pread(fd, 1 << 20, done):
                done += copy.write(block)
        give_to_owner(kept, path)
        sync(kept)
    sync(kept.parent)
