"""The text of an RTF document while it grows: paragraphs, items of lists, and tables, which end with their rows."""

from __future__ import annotations

import re

from app.loaders.blocks import Flow, grid
from app.loaders.marks import escaped, unescaped

# Marks that tell an order; others are bullets. Each line of an item is indented by them, so their length is bounded.
NUMBERED = re.compile(r"\(?(?:\d{1,9}|\w)[.)]|\d{1,4}(?:\.\d{1,4}){1,8}\.?")
DEEPEST = 8  # levels of a list that are shown


class RichBody:
    """Of the document, or of a note, comment or box in it."""

    def __init__(self) -> None:
        self._flow = Flow()
        self._text: list[str] = []  # of the paragraph
        self._mark = ""  # of an item of a list
        self._paragraphs: list[str] = []  # of the cell
        self._cells: list[str] = []  # of the row
        self._rows: list[list[str]] = []  # of the table
        self._behind: list[str] = []  # blocks that come behind the paragraph

    def write(self, text: str) -> None:
        self._text.append(text)

    def begin_item(self, mark: str) -> None:
        self._mark = (f"{mark} " if NUMBERED.fullmatch(mark) else "- ") if mark else ""

    def add_behind(self, block: str) -> None:
        if block:
            self._behind.append(block)

    def end_paragraph(self, heading: int = 0, level: int = 0, in_table: bool = False) -> None:
        """`heading`: its level, 0 of other paragraphs; `level`: of an item of a list, from 0."""
        text, mark = _whole(self._text), self._mark
        mark = "  " * max(0, min(level, DEEPEST)) + mark if mark else ""
        self._text, self._mark = [], ""
        if in_table or self._cells:
            self._paragraphs += [escaped(mark.lstrip() + text, is_below=bool(self._paragraphs))] if text else []
        else:
            self._end_table()
            self._add(text, mark, heading, plain=True)
        behind, self._behind = self._behind, []
        for block in behind:
            if in_table or self._cells:
                self._paragraphs.append("\n" * bool(self._paragraphs) + block)
            else:
                self._add(block)

    def end_cell(self) -> None:
        self.end_paragraph(in_table=True)
        self._cells.append("\n".join(self._paragraphs))
        self._paragraphs = []

    def end_row(self) -> None:
        if self._cells:
            self._rows.append(self._cells)
        self._cells = []

    def close(self) -> str:
        self.end_paragraph()
        self.end_row()
        self._end_table()
        return self._flow.text()

    def _end_table(self) -> None:
        rows, self._rows = self._rows, []
        for paragraph in self._paragraphs:  # in a table that has no cell
            self._add(paragraph.lstrip("\n"))
        self._paragraphs = []
        if table := _table(rows):
            self._add(table)

    def _add(self, text: str, mark: str = "", heading: int = 0, plain: bool = False) -> None:
        if not text:
            return
        flow = self._flow
        flow.lists = [None] if mark else []
        flow.mark, flow.indent = mark, " " * len(mark)
        if heading:
            flow.mark, flow.indent, text = "#" * min(heading, 6) + " ", "", " ".join(text.split())
        flow.add(text, plain)


def joined(parts: list[str]) -> str:
    """Halves of characters, which stand one after another, are one."""
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _whole(parts: list[str]) -> str:
    """The white space of lines is as in Markdown."""
    return "\n".join(line for raw in joined(parts).split("\n") if (line := " ".join(raw.split())))


def _table(rows: list[list[str]]) -> str:
    """One of a single column lays out its page only."""
    if max(map(len, rows), default=0) < 2:
        return "\n\n".join(cell for row in rows for cell in row if cell)
    return grid([unescaped(cell) for cell in row] for row in rows)
