"""OpenDocument spreadsheets: a page per sheet, a row an item, as workbooks of Excel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from zipfile import ZipFile

from app.loaders.base import PagedText, Parsed, SourceFile
from app.loaders.blocks import rows_as_items
from app.loaders.odml import BLANKS, CONTENT, OBJECTS, SKIPPED, read_part, refuse_encrypted, tell_left_out, title_of
from app.loaders.soundness import ODS, opened

MOST_COLUMNS = 1 << 14  # of a sheet, as programs have them
SHEET, ROW, CELL, COVERED = "table:table", "table:table-row", "table:table-cell", "table:covered-table-cell"
COLUMNS_REPEATED, ROWS_REPEATED = "table:number-columns-repeated", "table:number-rows-repeated"
CACHED = re.compile(r"'[a-z]{2,10}:")  # LibreOffice names by addresses what it keeps of other files; no sheet can be
WHITE = {**BLANKS, "text:line-break": "\n"}


def load_ods(source: SourceFile) -> Parsed:
    left_out: Counter[str] = Counter()
    sheets = PagedText(source, "sheet")
    with opened(source, ODS, (CONTENT,)) as archive:
        refuse_encrypted(source, archive)
        found = _sheets(source, archive, _Sheets(source, left_out))
        filled = False
        for number, (name, rows) in enumerate(found, start=1):
            items = list(source.bounded(rows_as_items(rows)))
            filled = filled or bool(items)
            sheets.add(number, "\n\n".join([f"# {name}", *items]) if items else "")
        title = title_of(source, archive)
    tell_left_out(source, left_out)
    if not filled:
        raise source.error("holds no values: all cells of its sheets are blank")
    return sheets.parsed("items", title or source.name)


def _sheets(source: SourceFile, archive: ZipFile, target: _Sheets) -> Iterator[tuple[str, Iterator[list[str]]]]:
    """The name of each, and its rows while they are read: take all of them before the next sheet."""
    with archive.open(CONTENT) as part:
        pieces = (event for _ in read_part(source, part, target) for event in target.taken())
        for event in pieces:
            if isinstance(event, str):
                yield event, _rows(pieces, target)


def _rows(events: Iterator[str | _Row | None], target: _Sheets) -> Iterator[list[str]]:
    for event in events:
        if event is None:
            return
        if isinstance(event, _Row):
            yield from target.expanded(event)


@dataclass
class _Row:
    """Texts of cells, and how often each is repeated."""

    times: int
    cells: list[tuple[str, int]] = field(default_factory=list)


class _Sheets:
    """Events of a sheet: its name, its rows, and None at its end. Sheets within cells and copies of others are none."""

    def __init__(self, source: SourceFile, left_out: Counter[str]):
        self._source, self._left_out = source, left_out
        self._left, self._characters = source.limits.max_cells, 0
        self._done: list[str | _Row | None] = []
        self._is_open = self._is_copy = False
        self._name: str | None = None  # of a sheet that is not told yet
        self._row: _Row | None = None
        self._cell: Mapping[str, str] | None = None
        self._skipped = 0
        self._paragraphs: list[list[str]] = []  # of the cell
        self._in_paragraph = 0

    def taken(self) -> Iterator[str | _Row | None]:
        done, self._done = self._done, []
        yield from done

    def expanded(self, row: _Row) -> Iterator[list[str]]:
        """As often as it is repeated. Raises LoadError above the limits, before it is put together."""
        while row.cells and not row.cells[-1][0]:
            row.cells.pop()
        width = sum(times for _, times in row.cells)
        if width > MOST_COLUMNS:
            raise self._source.error(f"has a row of more than {MOST_COLUMNS:,} columns: split it")
        self._left -= (width + 1) * (row.times if width else 1)
        if self._left < 0:
            most = self._source.limits.max_cells
            raise self._source.error(f"has more than {most:,} cells: split it, or remove what is far below its rows")
        self._characters += sum(len(text) * times for text, times in row.cells) * row.times
        self._source.expect_characters(self._characters)
        cells = [text for text, times in row.cells for _ in range(times)]
        for _ in range(row.times if width else 0):
            yield cells

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in OBJECTS:
            self._left_out["embedded objects"] += 1
        if self._skipped or self._is_left_out(name):
            self._skipped += 1
        elif self._in_paragraph or name == "text:p":
            self._in_paragraph += 1
            if self._in_paragraph == 1:
                self._paragraphs.append([])
            self._paragraphs[-1].append(WHITE.get(name, ""))
        elif name == SHEET:
            self._is_open, self._is_copy, self._name = True, False, attributes.get("table:name", "")
        elif name == "table:table-source":
            self._is_copy = CACHED.match(self._name or "") is not None
        elif name == ROW:
            self._tell_name()
            self._row = _Row(_times(attributes, ROWS_REPEATED))
        elif name in (CELL, COVERED):
            self._cell, self._paragraphs = attributes, []

    def end(self, name: str) -> None:
        if self._skipped:
            self._skipped -= 1
        elif self._in_paragraph:
            self._in_paragraph -= 1
        elif name in (CELL, COVERED) and self._row is not None and self._cell is not None:
            text = "" if name == COVERED else self._value(self._cell)
            self._row.cells.append((text, _times(self._cell, COLUMNS_REPEATED)))
            self._cell = None
        elif name == ROW and self._row is not None:
            if not self._is_copy:
                self._done.append(self._row)
            self._row = None
        elif name == SHEET:
            self._tell_name()
            self._is_open = False
            if not self._is_copy:
                self._done.append(None)

    def data(self, text: str) -> None:
        if self._in_paragraph and not self._skipped:
            self._paragraphs[-1].append(text)

    def _tell_name(self) -> None:
        """Once what stands before the rows has told whether they are a copy."""
        if self._name is not None and not self._is_copy:
            self._done.append(self._name)
        self._name = None

    def _is_left_out(self, name: str) -> bool:
        """What is no cell of a sheet and no text of a cell; the texts of a drawing lie over the cells."""
        if name == "office:annotation":
            self._left_out["comments"] += 1
            return True
        if self._in_paragraph:
            return name in SKIPPED
        if self._cell is not None:
            return name != "text:p"
        if self._row is not None:
            return name not in (CELL, COVERED)
        if name == SHEET:
            return self._is_open
        return name in SKIPPED or (self._is_open and name in ("table:shapes", "text:p"))

    def _value(self, cell: Mapping[str, str]) -> str:
        """What a cell says: numbers as they are, dates as in workbooks, all else as it is shown."""
        shown = "\n".join("".join(parts) for parts in self._paragraphs).strip()
        kind = cell.get("office:value-type", "")
        if kind == "float":
            with suppress(ValueError):
                return f"{float(cell.get('office:value', '')):.15g}"
        if kind == "date" and (told := cell.get("office:date-value", "")):
            return told.removesuffix("T00:00:00").replace("T", " ")
        if kind == "boolean":
            return cell.get("office:boolean-value", shown).upper()
        return shown or cell.get("office:string-value", "") or cell.get("office:value", "")


def _times(attributes: Mapping[str, str], name: str) -> int:
    told = attributes.get(name, "1")
    return max(1, int(told)) if told.isdecimal() and len(told) < 10 else 1
