"""A part of a table as one again. Its text has an item a row, with a line of `column: value` for each cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.client.evidence import SeenText
from ui.markup import escape

ITEMS = "items"  # the kind of document whose text is such
BETWEEN, BEHIND_A_NAME = "\n\n", ": "
MOST_COLUMNS, MOST_ROWS = 40, 400


@dataclass(frozen=True)
class TableRow:
    cells: dict[str, str]
    cited: bool
    marked: bool


def table(seen: SeenText) -> str:
    """As HTML, with the cited rows marked; "" where its items are no rows, or none of the cited ones is whole."""
    rows = list(_rows(seen))[:MOST_ROWS]
    columns = list(dict.fromkeys(name for row in rows for name in row.cells))[:MOST_COLUMNS]
    if len(columns) < 2 or len(rows) < 2 or not any(row.cited for row in rows):
        return ""
    head = "".join(f'<th scope="col" dir="auto">{escape(name)}</th>' for name in columns)
    body = "".join(_row(row, columns) for row in rows)
    return (
        f'<div class="rc-rows" tabindex="0" role="region" aria-label="Rows of the table"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: TableRow, columns: list[str]) -> str:
    kind = ' class="rc-row-marked"' if row.marked else ' class="rc-row-cited"' if row.cited else ""
    first, *rest = (f'dir="auto">{escape(row.cells.get(name, ""))}' for name in columns)
    told = f"<td {first}</td>" + "".join(f"<td {cell}</td>" for cell in rest)
    return f"<tr{kind}>{told}</tr>"


def _rows(seen: SeenText) -> Iterator[TableRow]:
    """The whole ones: what the part cuts at its edges is left out, as is what is no row."""
    at, last = 0, len(seen.text)
    marked = seen.marked if seen.marked[1] > seen.marked[0] else (seen.start, seen.end)
    for item in seen.text.split(BETWEEN):
        start, end = at, at + len(item)
        at = end + len(BETWEEN)
        cut = (start == 0 and not seen.begins) or (end == last and not seen.ends)
        cells = _cells(item)
        if cells and not cut:
            yield TableRow(cells, start < seen.end and seen.start < end, start < marked[1] and marked[0] < end)


def _cells(item: str) -> dict[str, str]:
    """A line without a name goes on with the cell before it."""
    cells: dict[str, str] = {}
    last = ""
    for line in item.splitlines():
        name, parted, value = line.partition(BEHIND_A_NAME)
        if parted and name not in cells:
            cells[name], last = value, name
        elif last:
            cells[last] += f"\n{line}"
    return cells
