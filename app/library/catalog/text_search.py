"""Words looked for as they stand, by each kind of database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Integer, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class PlaceIn(FunctionElement[int]):
    """Where in a text words begin, counted from 1; 0 where they are not there."""

    type = Integer()
    inherit_cache = True


@compiles(PlaceIn)
def _in_sqlite(place: PlaceIn, compiler: SQLCompiler, **options: Any) -> str:
    return f"instr({compiler.process(place.clauses, **options)})"


@compiles(PlaceIn, "postgresql")
def _in_postgresql(place: PlaceIn, compiler: SQLCompiler, **options: Any) -> str:
    return f"strpos({compiler.process(place.clauses, **options)})"


def says(column: ColumnElement[str], words: str) -> ColumnElement[bool]:
    """Whether the column has these words, which are in small letters; as many of its own as the database knows of count
    as small.
    """
    return PlaceIn(func.lower(column), words) > 0
