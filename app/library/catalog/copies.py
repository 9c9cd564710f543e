"""Copies of an SQLite catalog, made while others use it: one file each, whole or not there."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from app.errors import CatalogError
from app.library.catalog.database import Database
from app.library.catalog.failures import catalog_failures
from ragcache.host import FILE, private_folder, put, sync

PART = ".part"  # ends the name of a copy that is not whole yet
OWNED = ".lock"  # ends the name of the lock of whoever writes one
# What SQLite keeps beside a file, and takes for a part of it whatever file that is.
COMPANIONS = ("-wal", "-shm", "-journal")
# The bytes that SQLite locks in a file: whoever has it open in WAL mode holds a lock on some of them.
_LOCKED, _LENGTH = 0x40000000, 512
ENDING = ".sqlite"  # of most catalogs
BACKUPS = "backups"  # the folder beside a catalog, of copies named by it, their time and why they were made
REPLACED, UPGRADED = "replaced", r"(?!replaced)\w+"  # by a restore, and by an upgrade from a revision


def back_up(database: Database, target: Path, force: bool = False) -> None:
    """The catalog of one moment as a file of its own. Raises CatalogError; `force` replaces a file that nobody uses."""
    source, target = sqlite_file(database, "backup"), Path(os.path.realpath(target))
    if not source.exists():
        raise CatalogError(f"there is no catalog at {source}: nothing was copied")
    own = target.exists() and target.samefile(source)
    if own or target in companions(source) or source in companions(target):
        raise CatalogError(f"{target} is the catalog itself, or a part of it: name another file")
    there = [path for path in (target, *companions(target)) if path.exists()]
    if there and not force:
        raise CatalogError(f"{there[0]} is there already: name another file, or replace it with --force")
    with catalog_failures(str(target), OSError), beside(target) as fresh:
        write_copy(source, fresh)
        check_sound(fresh, source)
        with unused(target):
            for path in companions(target):
                path.unlink(missing_ok=True)
            put(fresh, target)


def sqlite_file(database: Database, command: str) -> Path:
    """Raises CatalogError for PostgreSQL, which has tools of its own."""
    if database.path is not None:
        return database.path
    name = database.url.database
    tool = {
        "backup": f"`pg_dump --format=custom --file=FILE {name}`",
        "restore": f"`pg_restore --clean --if-exists --dbname={name} FILE`, then `ragcache reindex` each collection",
    }[command]
    raise CatalogError(
        f"the catalog {database.where} is in PostgreSQL, which has tools of its own: give its host, port and user to "
        f"{tool}"
    )


def companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in COMPANIONS]


def new_backup(path: Path, why: str) -> Path:
    """Its name, in a folder that is there, and the catalog's owner's where it was not."""
    folder = path.parent / BACKUPS
    if not folder.is_dir():
        private_folder(folder)
        give_to_owner(folder, path)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return folder / f"{path.name.removesuffix(ENDING)}-{stamp}-{why}{_ending(path)}"


def give_to_owner(path: Path, catalog: Path) -> None:
    """Root may work for somebody else, who is to find all in order; others can give nothing away, nor can root where
    a file system takes it for another user.
    """
    if os.geteuid() == 0:
        with suppress(OSError):
            there = catalog.stat()
            os.chown(path, there.st_uid, there.st_gid, follow_symlinks=False)


def drop_backups(path: Path, why: str, keep: int, newest: Path | None) -> None:
    """The oldest of this catalog alone: another may have its backups in the same folder. `why` is a pattern.

    `newest` was made just now, whatever the clock says: it may have been set back. What cannot go stays.
    """
    stamp = r"\d{8}T\d{6}\.\d{6}Z"
    ending = re.escape(_ending(path))
    # They all ended so once, whatever the catalog did. Where there is one that does, such backups are that one's.
    if not ending and not path.with_name(path.name + ENDING).exists():
        ending = f"(?:{re.escape(ENDING)})?"
    name = re.compile(f"{re.escape(path.name.removesuffix(ENDING))}-{stamp}-{why}{ending}")
    there = [one for one in (path.parent / BACKUPS).iterdir() if name.fullmatch(one.name)]
    found = sorted(there, key=lambda one: (one == newest, one.name))
    for old in found[: max(0, len(found) - keep)]:
        with suppress(OSError):
            _drop(old)


def _ending(path: Path) -> str:
    """Of backups: that of the catalog, or `kb` and `kb.sqlite` would take each other's for their own."""
    return ENDING if path.name.endswith(ENDING) else ""


def write_copy(source: Path, target: Path) -> None:
    """All of a database that others may be writing to, on the disk when this returns. Raises sqlite3.Error and OSError.

    The copy needs no log beside it, so it can be carried away alone.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE))
    # A file without a log is read as it is: nothing is made beside it, also where nothing can be.
    alone = "" if companions(source)[0].exists() else "&immutable=1"
    try:
        _copy(source.as_uri(), target)
    except sqlite3.OperationalError as error:
        if not getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            raise
        _copy(f"{source.as_uri()}?mode=ro{alone}", target)
    sync(target)


def _copy(uri: str, target: Path) -> None:
    with closing(sqlite3.connect(uri, uri=True)) as whole, closing(existing(target)) as copy:
        whole.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")


def existing(path: Path, timeout: float = 5.0) -> sqlite3.Connection:
    """Of a file that is gone SQLite would make an empty one, and find it sound."""
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", timeout=timeout, uri=True)


def check_sound(path: Path, of: Path) -> None:
    """Raises CatalogError when SQLite finds something wrong with a file, which is a copy of another."""
    with catalog_failures(str(of)), closing(existing(path)) as connection:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        dangling = connection.execute("PRAGMA foreign_key_check").fetchone()
    if found != "ok" or dangling:
        reason = found if found != "ok" else f"a row of {dangling[0]} points at nothing"
        raise CatalogError(f"{of} is damaged ({reason.splitlines()[-1]}): take an older copy")


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A free name in the folder of `target`, for a file that is renamed in the block or removed after it.

    Those that a killed process has left go before; while one is written, it is owned.
    """
    private_folder(target.parent)
    _drop_left(target)
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}{PART}")
    with owned(temporary):
        try:
            yield temporary
        finally:
            _drop(temporary)


def _drop_left(target: Path) -> None:
    """What cannot go, as another user's, hinders no copy."""
    name = re.compile(rf"({re.escape(target.name)}\.[0-9a-f]{{8}}{re.escape(PART)})(?:{re.escape(OWNED)})?")
    found = [name.fullmatch(one.name) for one in target.parent.iterdir()]
    for left in {target.with_name(one[1]) for one in found if one}:
        with suppress(CatalogError, OSError), owned(left, timeout=0):
            _drop(left)


def _drop(path: Path) -> None:
    for file in (path, *companions(path)):
        file.unlink(missing_ok=True)


@contextmanager
def owned(part: Path, timeout: float = -1) -> Iterator[None]:
    """Nobody else takes the file for one that was left, whether it is there or not. Raises CatalogError and OSError.

    Locks on the file itself would end whenever SQLite closes it.
    """
    lock = FileLock(f"{part}{OWNED}", timeout, FILE)
    try:
        held = lock.acquire()
    except Timeout:
        raise in_use(part) from None
    with held:
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)  # for good: no part has the name of another


@contextmanager
def unused(path: Path) -> Iterator[int | None]:
    """Nobody has the file open, and nobody can read it meanwhile -> its descriptor. Raises CatalogError."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _LENGTH, _LOCKED)
        except (BlockingIOError, PermissionError) as error:
            raise in_use(path) from error
        yield fd
    finally:
        os.close(fd)


def in_use(path: Path) -> CatalogError:
    return CatalogError(f"{path} is in use: stop the programs that have it open, and try again")
