"""The numbers of an office chart as tables, from the XML that programs keep them in for whoever cannot compute them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from app.loaders.base import SourceFile
from app.loaders.grid import grid

Column = dict[int, str]  # by the index of the point


def charted(source: SourceFile, space: Any) -> Iterator[str]:
    """A table for each plot of a chartSpace, a row per category or point. Raises LoadError where it is too large."""
    left = source.limits.max_cells
    for area in space.iter("{*}plotArea"):
        for plot in area:
            columns = list(_columns(plot))
            indices = sorted({index for _, column in columns for index in column})
            left -= len(indices) * len(columns)
            if left < 0:
                raise source.error(f"has a chart of more than {source.limits.max_cells:,} values: remove it")
            rows = ([column.get(index, "") for _, column in columns] for index in indices)
            table = grid([[name for name, _ in columns], *rows]) if columns else ""
            if table:
                yield table


def _columns(plot: Any) -> Iterator[tuple[str, Column]]:
    """Named ones: categories or X values where they are not those of the series before, Y values, sizes of bubbles."""
    before: Column | None = None
    for number, series in enumerate(plot.iterchildren("{*}ser"), start=1):
        names = (name for text in series.iterchildren("{*}tx") for name in _names(text) if name)
        name = next(names, f"series {number}")
        labels = [_points(found) for found in series.iterchildren("{*}cat", "{*}xVal")]
        if before is None or (labels and labels[0] != before):
            before = labels[0] if labels else {}
            yield "", before
        for found in series.iterchildren("{*}val", "{*}yVal", "{*}bubbleSize"):
            yield name, {index: _number(text) for index, text in _points(found).items()}


def _points(found: Any) -> Column:
    """Labels of several levels stand in the file with the innermost first."""
    levels: dict[int, list[str]] = {}
    for point in found.iter("{*}pt"):
        levels.setdefault(int(point.get("idx", 0)), []).append("".join(point.itertext()).strip())
    return {index: " ".join(reversed(labels)) for index, labels in levels.items()}


def _names(text: Any) -> Iterator[str]:
    """What a name's cells hold, or what was typed in their stead."""
    yield from _points(text).values()
    yield from ("".join(typed.itertext()).strip() for typed in text.iterchildren("{*}v"))


def _number(text: str) -> str:
    """Without the noise of binary fractions; a value may also be an error such as #N/A."""
    with suppress(ValueError):
        return f"{float(text):.15g}"
    return text
