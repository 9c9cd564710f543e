"""Rows as a table of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Value = str | int | float | None
Row = Mapping[str, Value]


def render(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A header, a rule and a line per row; texts to the left, numbers to the right."""
    cells = [[shown(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    numeric = [any(isinstance(row[column], int | float) for row in rows) for column in columns]

    def line(texts: Sequence[str]) -> str:
        pairs = zip(texts, widths, numeric, strict=True)
        return "  ".join(text.rjust(width) if right else text.ljust(width) for text, width, right in pairs).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *(line(row) for row in cells)])


def shown(value: Value) -> str:
    """Three digits that mean something."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
