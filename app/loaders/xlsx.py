"""Excel workbooks: a page per sheet, a row an item. Cells have the values that the program last computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from io import BytesIO
from threading import Lock
from typing import Any

from app.loaders.archive import opened
from app.loaders.base import PagedText, Parsed, Source
from app.loaders.damage import reading
from app.loaders.rows import rows_as_items
from app.loaders.sniffing import XLSX

# Filters of warnings belong to the whole process, and two threads that change them would mix them up for good.
FILTERS = Lock()
STREAMED = ("xl/worksheets/", "xl/sharedStrings.xml")  # not read as a tree


def load_xlsx(source: Source) -> Parsed:
    from openpyxl.utils.exceptions import InvalidFileException

    with opened(source, XLSX, STREAMED), FILTERS, warnings.catch_warnings():
        # Of drop-down lists, styles and other things that a reader of text does not miss.
        warnings.filterwarnings("ignore", module=r"openpyxl\.")
        with reading(source, XLSX.name, InvalidFileException):
            return _parsed(source)


def _parsed(source: Source) -> Parsed:
    from openpyxl import load_workbook

    book = load_workbook(BytesIO(source.data), read_only=True, data_only=True, keep_links=False)
    try:
        sheets = PagedText(source, "sheet")
        filled, cells = False, _Cells(source)
        for number, sheet in enumerate(book.worksheets, start=1):
            items = list(source.bounded(rows_as_items(cells.counted(_rows(sheet)))))
            filled = filled or bool(items)
            sheets.add(number, "\n\n".join([f"# {sheet.title}", *items]) if items else "")
        if not filled:
            raise source.error(
                "holds no values: its formulas have not been computed yet; open it in a spreadsheet program and save it"
            )
        return sheets.parsed("items", (book.properties.title or "").strip() or source.name)
    finally:
        book.close()


class _Cells:
    """Those of all sheets, blank ones too."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = source.limits.max_cells

    def counted(self, rows: Iterable[list[str]]) -> Iterator[list[str]]:
        for row in rows:
            self._left -= len(row) + 1  # a row without cells takes its time too
            if self._left < 0:
                most = self._source.limits.max_cells
                raise self._source.error(
                    f"has more than {most:,} cells: split it, or remove what is far below its rows"
                )
            yield row


def _rows(sheet: Any) -> Iterator[list[str]]:
    sheet.reset_dimensions()  # some programs write wrong ones
    return ([_cell(value) for value in row] for row in sheet.iter_rows(values_only=True))


def _cell(value: object) -> str:
    """A value as a sheet shows it; a date without time has none. Errors such as #DIV/0! are text already."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "seconds")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float):
        return f"{value:.15g}"  # what a cell holds; more digits are noise of binary fractions
    if isinstance(value, timedelta):
        return str(value)
    return str(value)
