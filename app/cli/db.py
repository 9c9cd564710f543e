"""`ragcache db …`: the schema of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.catalog_flags import Json
from app.cli.flags import configure
from app.cli.printing import print_json

if TYPE_CHECKING:
    from app.catalog.schema import Schema

DataDir = Annotated[Path | None, typer.Option(help="Where the catalog is, unless a database URL is set.")]

db = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@db.callback()
def schema() -> None:
    """See and upgrade the schema of the catalog. Every command that needs it upgrades it too."""


@db.command()
def current(as_json: Json = False, data_dir: DataDir = None) -> None:
    """Tell which schema the catalog has; exit code 1 when it is not the newest."""
    settings = configure(data_dir=data_dir)
    from app.catalog.engine import Database, database_url
    from app.catalog.schema import inspect_schema

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
    from app.catalog.engine import Database, database_url
    from app.catalog.schema import inspect_schema, upgrade

    database = Database(database_url(settings))
    backup = upgrade(database, settings.backups)
    found = inspect_schema(database)
    database.close()
    _tell(found, as_json, backup)


def _tell(found: Schema, as_json: bool, backup: Path | None = None) -> None:
    if as_json:
        told = {"database": found.database, "revision": found.revision, "newest": found.newest}
        print_json(told | {"current": found.current, "backup": None if backup is None else str(backup)})
        return
    state = "the newest" if found.current else f"the newest is {found.newest}: run `ragcache db upgrade`"
    print(f"{found.database}: schema {found.revision or 'none'}, {state}")
    if backup is not None:
        print(f"the old file is kept as {backup}")
