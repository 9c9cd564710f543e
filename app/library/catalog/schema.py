"""The schema of the database: which revision it has, and how the scripts in `migrations/` bring it to the newest."""

from __future__ import annotations

import re
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from app.errors import CatalogError
from app.library.catalog.copies import (
    BACKUPS,
    UPGRADED,
    beside,
    drop_backups,
    give_to_owner,
    new_backup,
    write_copy,
)
from app.library.catalog.database import Database
from app.library.catalog.failures import catalog_failures
from app.library.catalog.locks import schema_alone
from ragcache.host import private_file, put

# The scripts lie beside this package, in a checkout and where it is installed.
SCRIPTS = Path(__file__).parents[3] / "migrations"
VERSION_TABLE = "ragcache_schema"
# Alembic keeps the migration at hand in its modules, so of the threads of a process one at a time can have it.
_ALEMBIC = threading.Lock()
# Bytes of a page: a chunk takes more than half of one of SQLite's 4,096, so the rest of each would stay empty.
_PAGE = 8192
# In a script. Python's own parser is not for threads: in some of its versions two that parse at once break one another.
_NAMED = re.compile(r"^(revision|down_revision) = (?:[\"'](\w+)[\"']|None)$", re.MULTILINE)
_ADVISORY = 0x52414743  # "RAGC": the lock of PostgreSQL under which the schema changes


@dataclass(frozen=True)
class Schema:
    """Where a database stands: `revision` is None in an empty one."""

    database: str
    revision: str | None
    newest: str

    @property
    def current(self) -> bool:
        return self.revision == self.newest


def inspect_schema(database: Database, folder: Path = SCRIPTS) -> Schema:
    """Where it stands; creates nothing."""
    known = _revisions(folder)
    (newest,) = known.keys() - known.values()
    with catalog_failures(database.where, OSError):
        if database.path is not None and not database.path.exists():
            return Schema(database.where, None, newest)
    with database.reading() as connection:
        if database.path is None:
            _refuse_other_encodings(connection, database)
        revision = _revision(connection, database)
    if revision is not None and revision not in known:
        raise CatalogError(
            f"the catalog {database.where} was written by a newer version of ragcache (schema {revision}). Install "
            "that version, or choose another data folder or database"
        )
    return Schema(database.where, revision, newest)


def upgrade(database: Database, backups: int, folder: Path = SCRIPTS) -> Path | None:
    """Bring the database to the newest revision; returns the backup that was made of an SQLite file, if any.

    Any number of processes may call this at once: one works, the others wait and find it done.
    """
    with schema_alone(database):
        if database.path is not None:
            _write_ahead(database)
        schema = inspect_schema(database, folder)
        if schema.current:
            return None
        wanted = backups > 0 and schema.revision is not None and database.path is not None
        backup = _back_up(database, schema.revision or "", backups) if wanted else None
        with _ALEMBIC, database.migrating() as connection:
            if database.path is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY})
            if _revision(connection, database) != schema.newest:
                _run_scripts(folder, connection)
    return backup


def _revisions(folder: Path) -> dict[str, str | None]:
    """All that there are, each with the one before it. Read from the scripts' text: importing Alembic takes longer than
    most commands, which find the schema as it should be.
    """
    found: dict[str, str | None] = {}
    for path in sorted((folder / "versions").glob("*.py")):
        names: dict[str, str] = dict(_NAMED.findall(path.read_text(encoding="utf-8")))
        if "revision" in names:
            found[names["revision"]] = names["down_revision"] or None
    return found


def _run_scripts(folder: Path, connection: Connection) -> None:
    from alembic import command, config  # most commands find the schema as it should be

    chosen = config.Config(attributes={"connection": connection})
    chosen.set_main_option("script_location", str(folder).replace("%", "%%"))
    command.upgrade(chosen, "head")


def _revision(connection: Connection, database: Database) -> str | None:
    tables = inspect(connection)
    there = tables.has_table(VERSION_TABLE)
    found: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) if there else None
    # A server's database may be shared; a file with other tables and without ours was named by mistake.
    if found is None and database.path is not None and {*tables.get_table_names()} - {VERSION_TABLE}:
        raise CatalogError(f"{database.where} belongs to another program. Choose another file or data folder")
    return found


def _refuse_other_encodings(connection: Connection, database: Database) -> None:
    """Of PostgreSQL: one that has not all characters would refuse documents, one by one."""
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise CatalogError(
            f"the database {database.where} has the encoding {encoding}, which cannot hold every text: make one with "
            "`createdb --encoding=UTF8 --template=template0 NAME` and name it in RAGCACHE_DATABASE_URL"
        )


def _write_ahead(database: Database) -> None:
    """Readers and one writer at a time, side by side. The file remembers it."""
    assert database.path is not None
    with catalog_failures(database.where, OSError):
        private_file(database.path)  # SQLite makes what lies beside it with the same modes
    with (
        catalog_failures(database.where),
        closing(sqlite3.connect(database.path, timeout=database.busy_seconds)) as connection,
    ):
        connection.execute(f"PRAGMA page_size = {_PAGE}")  # of a new file
        connection.execute("PRAGMA journal_mode = WAL")


def _back_up(database: Database, revision: str, keep: int) -> Path:
    """A copy of an SQLite file, which others may be using; the oldest beyond `keep` go."""
    assert database.path is not None
    with catalog_failures(f"{database.path.parent / BACKUPS}", OSError):
        target = new_backup(database.path, revision)
        with beside(target.parent / database.path.name) as fresh:
            write_copy(database.path, fresh)
            give_to_owner(fresh, database.path)
            put(fresh, target)
        drop_backups(database.path, UPGRADED, keep, target)
    return target
