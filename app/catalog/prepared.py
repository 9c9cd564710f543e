"""Queries that every question asks, past most of SQLAlchemy.

A language model empties the processor's caches between two questions, and then SQLAlchemy takes half a millisecond for
what the database answers in a tenth of that. So these are compiled once and run by the driver, and their values go
through the converters of their columns, as SQLAlchemy's would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select

from app.catalog.engine import Database
from app.catalog.failures import told
from retriever.shared_property import shared_property

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Compiled:
    sql: str
    order: Sequence[str] | None  # names of values for a driver that wants them by place
    given: tuple[tuple[str, Convert], ...]  # values that are stored otherwise than they are given
    read: tuple[tuple[int, Convert], ...]  # the same for columns, by place


class Prepared:
    """One select, which sees one moment of committed data."""

    def __init__(self, database: Database, statement: Select[*tuple[Any, ...]]):
        self._database = database
        self._statement = statement

    def rows(self, **values: Any) -> list[list[Any]]:
        """`values` are those of its bindparams."""
        compiled = self._compiled
        for name, convert in compiled.given:
            values[name] = convert(values[name])
        order = compiled.order
        rows = self._database.fetch(compiled.sql, values if order is None else [values[name] for name in order])
        found = [list(row) for row in rows]
        with told(self._database.where):
            for place, convert in compiled.read:
                for row in found:
                    row[place] = convert(row[place])
        return found

    @shared_property
    def _compiled(self) -> Compiled:
        dialect = self._database.dialect
        compiled: Any = self._statement.compile(dialect=dialect)
        binds = [
            (name, bind.type.dialect_impl(dialect).bind_processor(dialect)) for name, bind in compiled.binds.items()
        ]
        columns = [column.type.dialect_impl(dialect) for column in self._statement.selected_columns]
        results = [(place, kind.result_processor(dialect, None)) for place, kind in enumerate(columns)]
        return Compiled(
            str(compiled),
            compiled.positiontup if compiled.positional else None,
            tuple((name, convert) for name, convert in binds if convert is not None),
            tuple((place, convert) for place, convert in results if convert is not None),
        )
