"""What a migration of an SQLite file may not lose: rows, and the keys that were ever given out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, inspect

from app.errors import CatalogError

SEQUENCES = "sqlite_sequence"  # the highest key so far of each table that never gives one out again


@contextmanager
def kept_rows(connection: Connection, where: str) -> Iterator[None]:
    """Around a migration, inside its transaction. Raises CatalogError when a table that is still there has lost rows.

    A table that is made anew has all of its keys forgotten that are no longer in use: they are remembered here.
    """
    before, given = _counts(connection), _sequences(connection)
    yield
    after = _counts(connection)
    lost = sorted(name for name in before.keys() & after.keys() if after[name] < before[name])
    if lost:
        told = ", ".join(f"{name} has {after[name]:,} of {before[name]:,} rows" for name in lost)
        raise CatalogError(f"the catalog {where} stays as it was, since the new schema would lose data: {told}")
    dangling = sorted({str(row[0]) for row in connection.exec_driver_sql("PRAGMA foreign_key_check")})
    if dangling:
        raise CatalogError(
            f"the catalog {where} stays as it was: in the new schema rows of {', '.join(dangling)} would point at "
            "nothing. Restore a sound copy with `ragcache db restore`"
        )
    for name, number in given.items():
        raised = f"UPDATE {SEQUENCES} SET seq = max(seq, ?) WHERE name = ?"
        if not connection.exec_driver_sql(raised, (number, name)).rowcount and name in after:
            connection.exec_driver_sql(f"INSERT INTO {SEQUENCES} (name, seq) VALUES (?, ?)", (name, number))


def _counts(connection: Connection) -> dict[str, int]:
    names = inspect(connection).get_table_names()
    return {name: connection.exec_driver_sql(f'SELECT count(*) FROM "{name}"').scalar_one() for name in names}


def _sequences(connection: Connection) -> dict[str, int]:
    there = f"SELECT count(*) FROM sqlite_master WHERE name = '{SEQUENCES}'"
    if not connection.exec_driver_sql(there).scalar():
        return {}
    return {row[0]: row[1] for row in connection.exec_driver_sql(f"SELECT name, seq FROM {SEQUENCES}")}
