"""Rows of a table as items that each tell their columns: a chunk from the middle still says what its cells are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

# A title or a note above the header is one cell in a table of several columns.
LOOK_AHEAD = 20
YEAR = re.compile(r"(?:1[89]|20)\d\d")
LONGEST_NAME = 200  # characters; a name is told again with every value


def rows_as_items(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """One item a row, a `column: value` line per cell that is not blank. The first full row names the columns; titles
    above it are items.

    It is an item itself where nothing is below it, or where a name is too long to be told again: no header, perhaps.
    Names that no row has told come last.
    """
    filled = (row for row in rows if any(cell and not cell.isspace() for cell in row))
    ahead = list(islice(filled, LOOK_AHEAD))
    if not ahead:
        return
    at = _header(ahead)
    for row in ahead[:at]:
        yield " ".join(cell.strip() for cell in row if cell.strip())
    header = [cell.strip() for cell in ahead[at]]
    whole = at == len(ahead) - 1 or max(map(len, header)) > LONGEST_NAME
    if whole:
        yield " ".join(name for name in header if name)
    header = [name[:LONGEST_NAME] for name in header]
    untold = set() if whole else {index for index, name in enumerate(header) if name}
    for row in chain(ahead[at + 1 :], filled):
        untold.difference_update([index for index, cell in enumerate(row) if index in untold and cell.strip()])
        yield _item(header, row)
    if untold:
        yield f"columns without values: {', '.join(header[index] for index in sorted(untold))}"


def _header(ahead: Sequence[Sequence[str]]) -> int:
    """The index of the first full row; in a table of two columns a title is half of one."""
    widths = [_cells(row) for row in ahead]
    first = next(index for index, width in enumerate(widths) if width * 2 >= max(widths))
    if widths[first] > 1 or max(widths) == 1:
        return first
    fuller = next(index for index, width in enumerate(widths) if width > 1)
    # A list with a word beside some of its entries has a heading of one cell.
    is_list = sum(width > 1 for width in widths[fuller:]) * 2 <= len(widths[fuller:])
    left = min(_start(row) for row in ahead)
    beside = any(_start(row) > left for row in ahead[:fuller])
    return fuller if _names(ahead[fuller], ahead[fuller + 1 :]) and not is_list and not beside else first


def _names(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a cell of it is a word above numbers. Else it may be the first row of a table whose second column has no
    name: as a header, its values would be told with each row below.
    """
    for at, cell in enumerate(row):
        under = [other[at] for other in below if at < len(other) and other[at].strip()]
        is_name = cell.strip() and (not _is_number(cell) or (_is_year(cell) and not all(map(_is_year, under))))
        if is_name and under and all(map(_is_number, under)):
            return True
    return False


def _start(row: Sequence[str]) -> int:
    return next(index for index, cell in enumerate(row) if cell.strip())


def _is_number(cell: str) -> bool:
    return any(map(str.isdigit, cell)) and not any(map(str.isalpha, cell))


def _is_year(cell: str) -> bool:
    return YEAR.fullmatch(cell.strip()) is not None


def _cells(row: Sequence[str]) -> int:
    return sum(bool(cell.strip()) for cell in row)


def _item(header: Sequence[str], row: Sequence[str]) -> str:
    lines = []
    for index, cell in enumerate(row):
        value = cell.strip()
        if value:
            name = header[index] if index < len(header) else ""
            lines.append(f"{name or f'column {index + 1}'}: {value}")
    return "\n".join(lines)
