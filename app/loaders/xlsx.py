"""Excel workbooks: a page per sheet, a row an item. Cells have the values that the program last computed."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from io import BytesIO
from threading import Lock
from typing import Any
from xml.parsers import expat
from zipfile import ZipFile

from openpyxl.cell.text import Text
from openpyxl.reader.excel import SHARED_STRINGS, ExcelReader
from openpyxl.utils import column_index_from_string
from openpyxl.utils.escape import unescape
from openpyxl.utils.exceptions import InvalidFileException
from openpyxl.xml.constants import SHEET_MAIN_NS
from openpyxl.xml.functions import iterparse

from app.errors import printable
from app.loaders.base import PagedText, Parsed, SourceFile
from app.loaders.blocks import rows_as_items
from app.loaders.soundness import AT_ONCE, XLSX, opened, reading

# Filters of warnings belong to the whole process, and two threads that change them would mix them up for good.
FILTERS = Lock()
SHEETS = "xl/worksheets/"
STREAMED = (SHEETS, "xl/sharedStrings.xml")  # not read as a tree
CELL, FORMULA, VALUE = (f"http://schemas.openxmlformats.org/spreadsheetml/2006/main {tag}" for tag in "cfv")
STRICT = b"http://purl.oclc.org/ooxml/spreadsheetml/main"  # openpyxl finds no sheets under this name
# openpyxl has #VALUE! for such a cell; its warning alone holds the number.
NO_DATE = re.compile(r"Cell ([A-Z]+)(\d+) is marked as a date but the serial value (\S+) is outside")
UNWANTED = re.compile(r"[\x00-\x08\x0b-\x1f]")
logger = logging.getLogger(__name__)


def load_xlsx(source: SourceFile) -> Parsed:
    with opened(source, XLSX, STREAMED) as archive:
        with archive.open("xl/workbook.xml") as book:
            if STRICT in book.read(AT_ONCE):
                raise source.error(
                    "is a Strict Open XML workbook: open it in a spreadsheet program and save it as an ordinary one "
                    "(Excel Workbook, *.xlsx)"
                )
        with FILTERS, warnings.catch_warnings(record=True) as told:
            # Of drop-down lists, styles and other things that a reader of text does not miss.
            warnings.filterwarnings("ignore", module=r"openpyxl\.")
            warnings.filterwarnings("always", NO_DATE.pattern, module=r"openpyxl\.")
            with reading(source, XLSX.name, InvalidFileException):
                parsed = _parsed(source, told)
        uncomputed = sum(_uncomputed(archive))
    if uncomputed:
        logger.warning(
            "%s: %d cells are left out: their formulas have not been computed yet; "
            "open it in a spreadsheet program and save it",
            printable(source.path),
            uncomputed,
        )
    return parsed


def _parsed(source: SourceFile, told: list[warnings.WarningMessage]) -> Parsed:
    book = _opened(source)
    try:
        sheets = PagedText(source, "sheet")
        filled, cells = False, _Cells(source)
        for number, sheet in enumerate(book._sheets, start=1):
            rows = () if isinstance(sheet, _ChartSheet) else _rows(sheet, cells, told)
            items = list(source.bounded(rows_as_items(rows)))
            filled = filled or bool(items)
            sheets.add(number, "\n\n".join([f"# {_unescaped(sheet.title)}", *items]) if items else "")
        if not filled:
            raise source.error(
                "holds no values: its formulas have not been computed yet; open it in a spreadsheet program and save it"
            )
        return sheets.parsed("items", (book.properties.title or "").strip() or source.name)
    finally:
        book.close()


@dataclass
class _ChartSheet:
    """A tab that has no cells. Names may be defined for it as for any other."""

    defined_names: dict[str, Any] = field(default_factory=dict)


class _Reader(ExcelReader):  # type: ignore[misc]  # openpyxl has no types
    def read_chartsheet(self, sheet: Any, rel: Any) -> None:
        """Its place alone: openpyxl fails at one whose chart it does not find."""
        self.wb._sheets.append(_ChartSheet())

    def read_strings(self) -> None:
        """As they stand: openpyxl undoes one of their escapes, behind which others could not be told from text."""
        if (part := self.package.find(SHARED_STRINGS)) is None:
            return
        with self.archive.open(part.PartName[1:]) as table:
            for _, node in iterparse(table):
                if node.tag == f"{{{SHEET_MAIN_NS}}}si":
                    self.shared_strings.append(Text.from_tree(node).content)
                    node.clear()


def _opened(source: SourceFile) -> Any:
    reader = _Reader(BytesIO(source.data), read_only=True, data_only=True, keep_links=False)
    reader.read()
    return reader.wb


def _uncomputed(archive: ZipFile) -> Iterator[int]:
    """Of each sheet, the cells that have a formula and no value. openpyxl gives the same for them as for blank ones."""
    for member in archive.infolist():
        if member.filename.startswith(SHEETS):
            parser, formulas = expat.ParserCreate(namespace_separator=" "), _Formulas()
            parser.StartElementHandler, parser.EndElementHandler = formulas.start, formulas.end
            parser.CharacterDataHandler = formulas.data
            with suppress(expat.ExpatError), archive.open(member) as part:
                parser.ParseFile(part)
            yield formulas.uncomputed


class _Formulas:
    def __init__(self) -> None:
        self.uncomputed = 0
        self._text = self._formula = self._in_value = self._value = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == CELL:
            # Text may be computed to be empty, which is a value too.
            self._text, self._formula, self._value = attributes.get("t") == "str", False, False
        elif name == FORMULA:
            self._formula = True
        elif name == VALUE:
            self._in_value = True
            self._value = self._text

    def data(self, _: str) -> None:
        self._value = self._value or self._in_value

    def end(self, name: str) -> None:
        if name == CELL:
            self.uncomputed += self._formula and not self._value
        elif name == VALUE:
            self._in_value = False


@dataclass(frozen=True)
class _NoDate:
    """A cell that is formatted as a date and is none, such as 20240131."""

    row: int  # counts from 1
    at: int
    number: str


class _Cells:
    """Those of all sheets, blank ones too, and their characters: many cells may refer to one long text."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self._left = source.limits.max_cells
        self._characters = 0

    def counted(self, values: Sequence[object]) -> list[str]:
        """The cells of a row. Raises LoadError above the limits, before the row's text is put together."""
        self._left -= len(values) + 1  # a row without cells takes its time too
        if self._left < 0:
            most = self._source.limits.max_cells
            raise self._source.error(f"has more than {most:,} cells: split it, or remove what is far below its rows")
        row = []
        for value in values:
            row.append(_cell(value))
            self._characters += len(row[-1].strip())
            self._source.expect_characters(self._characters)
        return row


def _rows(sheet: Any, cells: _Cells, told: list[warnings.WarningMessage]) -> Iterator[list[str]]:
    """The cells of each row. `told` has the warnings of it, or of one further down behind rows that are not there."""
    sheet.reset_dimensions()  # some programs write wrong ones
    waiting: dict[int, list[_NoDate]] = {}  # by their row, which may be far below many blank ones
    for place, values in enumerate(sheet.iter_rows(values_only=True), start=1):
        row = cells.counted(values)
        for one in _no_dates(told):
            waiting.setdefault(one.row, []).append(one)
        told.clear()
        for one in waiting.pop(place, ()):
            if one.at < len(row):
                row[one.at] = one.number
        yield row


def _no_dates(told: Iterable[warnings.WarningMessage]) -> Iterator[_NoDate]:
    for one in told:
        if found := NO_DATE.match(str(one.message)):
            number = float(found[3])
            shown = found[3] if number.is_integer() else _cell(number)
            yield _NoDate(int(found[2]), column_index_from_string(found[1]) - 1, shown)


def _unescaped(text: str) -> str:
    """_x000D_ and the like stand for characters that XML cannot hold or would change."""
    if "_x" not in text:
        return text
    whole = unescape(text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return UNWANTED.sub("", whole)


def _cell(value: object) -> str:
    """A value as a sheet shows it; a date without time has none. Errors such as #DIV/0! are text already."""
    if value is None:
        return ""
    if isinstance(value, str):
        return _unescaped(value)
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "seconds")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float):
        return f"{value:.15g}"  # what a cell holds; more digits are noise of binary fractions
    return str(value)
