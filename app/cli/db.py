"""`ragcache db …`: the schema of the catalog, and copies of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from app.cli.flags import Json, configure
from app.cli.output import plain, print_json
from app.client.amounts import size
from app.library import index_folder
from app.library.catalog.copies import back_up
from app.library.catalog.database import Database, database_url
from app.library.catalog.restoration import restore as put_back
from app.library.catalog.schema import Schema, inspect_schema, upgrade

DataDir = Annotated[Path | None, typer.Option(help="Where the catalog is, unless a database URL is set.")]

db = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)


@db.callback()
def schema() -> None:
    """Copy and restore the catalog; see and upgrade its schema, which every command that needs it does too."""


@db.command()
def current(as_json: Json = False, data_dir: DataDir = None) -> None:
    """Tell which schema the catalog has; exit code 1 when it is not the newest."""
    settings = configure(data_dir=data_dir)
    database = Database(database_url(settings))
    found = inspect_schema(database)
    database.close()
    _tell(found, as_json)
    if not found.current:
        raise typer.Exit(1)


@db.command("upgrade")
def upgrade_(as_json: Json = False, data_dir: DataDir = None) -> None:
    """Bring the catalog to the newest schema; an SQLite file is copied to the folder `backups` first."""
    settings = configure(data_dir=data_dir)
    database = Database(database_url(settings))
    backup = upgrade(database, settings.backups)
    found = inspect_schema(database)
    database.close()
    _tell(found, as_json, backup)


@db.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The copy to be made.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Copy an SQLite catalog into one file, also while others write to it."""
    settings = configure(data_dir=data_dir)
    database = Database(database_url(settings))
    back_up(database, file, force)
    if as_json:
        print_json({"database": database.where, "backup": str(file.absolute()), "bytes": file.stat().st_size})
    else:
        print(f"{database.where} is copied to {plain(str(file))} ({size(file.stat().st_size)})")


@db.command()
def restore(
    file: Annotated[Path, typer.Argument(help="What `ragcache db backup` or an upgrade has made.")],
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Put a copy in the place of an SQLite catalog that nobody uses; what was there is kept in the folder `backups`."""
    settings = configure(data_dir=data_dir)
    database = Database(database_url(settings))
    restored = put_back(database, file, settings.backups)
    for uid in restored.uids:
        shutil.rmtree(index_folder(settings, uid), ignore_errors=True)  # of collections that have other uids now
    if as_json:
        kept = None if restored.kept is None else str(restored.kept)
        print_json({"database": database.where, "revision": restored.revision, "kept": kept})
        return
    print(f"{database.where} is restored from {plain(str(file))}; its indexes are made anew when they are asked for")
    if restored.kept is not None:
        print(f"what was there is kept as {restored.kept}")


def _tell(found: Schema, as_json: bool, backup: Path | None = None) -> None:
    if as_json:
        told = {"database": found.database, "revision": found.revision, "newest": found.newest}
        print_json(told | {"current": found.current, "backup": None if backup is None else str(backup)})
        return
    state = "the newest" if found.current else f"the newest is {found.newest}: run `ragcache db upgrade`"
    print(f"{found.database}: schema {found.revision or 'none'}, {state}")
    if backup is not None:
        print(f"the old file is kept as {backup}")
