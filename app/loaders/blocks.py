"""Blocks of Markdown, in a column: the text of a page, or of a cell of a table; and tables, some of which are there for
the layout of their page only. Rows of a table may be items that each tell their columns: a chunk from the middle still
says what its cells are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from app.loaders.marks import escaped, unescaped
from splitter.documents import lines_as_lf

# What HTML calls white space; a no-break space is a character.
SPACES = re.compile(r"[ \t\n\r\f]+")
BREAK = "\0"  # a <br>: HTML cannot hold this character
AROUND_BREAK = re.compile(rf" ?{BREAK} ?")
DEEPEST = 10  # levels that are shown; a page may nest 100,000, and each line would be marked as often
ENDING = re.compile(r"[^\W\d_]{2,}")  # raised letters of 1st, Mme and ™, which are no exponent
ORDINAL = re.compile(r"[eoarsdt]")  # one raised letter of 2e, XXe, no, 1a and Mr, behind what is COUNTED
COUNTED = re.compile(r"(?:\d|(?<!\w)(?:[IVXLCDM]+|[nN]))\Z")
ONE_TERM = re.compile(r"[-+−–]?[\w.,]+")
# Blocks of Markdown whose first line holds nothing before them.
WHOLE_LINE = re.compile(r"#{1,6} |`{3}|\|[^\n]*+\n\| ---")
LAYOUT_BLOCKS = 3  # a cell with more paragraphs than this is no datum
BAR = 3  # characters of Markdown around a cell
# What cells may take that are repeated, in characters: so much, and so many times the text of the table itself.
ROOM = 10_000
TIMES = 10
# A title or a note above the header is one cell in a table of several columns.
LOOK_AHEAD = 20
YEAR = re.compile(r"(?:1[89]|20)\d\d")
LONGEST_NAME = 200  # characters; a name is told again with every value


@dataclass
class Flow:
    """What grows at its end."""

    blocks: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)  # of the block that grows
    mark: str = ""  # what the next block starts with: of a heading or list item
    indent: str = ""  # of what follows in the same list item
    lists: list[int | None] = field(default_factory=list)  # numbers of the items so far; None where they have none
    quotes: int = 0
    heading: bool = False
    title: int = 0  # where in `inline` the page's title starts, while it grows
    structured: bool = False  # holds more than paragraphs
    rows: int = 1  # of a table, that it covers
    columns: int = 1
    escapes: bool = True  # lines of its texts that would act as marks

    def close(self) -> None:
        text = AROUND_BREAK.sub("\n", SPACES.sub(" ", "".join(self.inline))).strip(" \n")
        self.inline.clear()
        self.title = 0
        if text:
            self.add(SPACES.sub(" ", lines_as_lf(text)) if self.heading else text, plain=True)

    def add(self, text: str, plain: bool = False) -> None:
        """A block of Markdown, or a `plain` text, whose lines act as no marks."""
        first, self.mark = self.mark or self.indent, ""
        if not plain and first.strip() and WHOLE_LINE.match(text):
            first = self.indent if "#" in (first[0], text[0]) else f"{first.rstrip()}\n{self.indent}"
        text = first + text.replace("\n", "\n" + self.indent)
        if self.quotes:
            text = "\n".join("> " * min(self.quotes, DEEPEST) + line for line in text.split("\n"))
        if plain and self.escapes and not first.startswith("#"):
            text = escaped(text)
        # Items of one list follow each other without blank lines.
        tight = bool(self.lists) and first != self.indent and bool(self.blocks) and _is_item(self.blocks[-1])
        self.blocks.append(("\n" if tight else "\n\n") + text)

    def text(self) -> str:
        return "".join(self.blocks).strip("\n")

    def begin_item(self, number: int | None) -> None:
        """Of a list, or outside of any; `number` is for this and those behind it, where the list has numbers."""
        if self.lists and self.lists[-1] is not None:
            number = self.lists[-1] = self.lists[-1] + 1 if number is None else number
        else:
            number = None
        self.mark = "  " * min(len(self.lists) - 1, DEEPEST) + ("- " if number is None else f"{number}. ")
        self.indent = " " * len(self.mark)

    def raise_from(self, start: int, linked: bool) -> None:
        """What is inline from there on is superscript: 10^6 is not 106, and a linked mark of a note is no power."""
        content = "".join(self.inline[start:])
        raised, before = content.strip(), self.inline[start - 1][-1:] if start else BREAK
        if before == BREAK or before.isspace() or not any(map(str.isalnum, raised)):
            return
        if linked:
            raised = raised if raised[0] in "[(" else f"[{raised}]"
        elif not ENDING.fullmatch(raised) and not (
            ORDINAL.fullmatch(raised) and COUNTED.search(self.inline[start - 1])
        ):
            raised = f"^{raised}" if ONE_TERM.fullmatch(raised) else f"^({raised})"
        self.inline[start:] = [raised, " "] if content[-1].isspace() else [raised]


def fenced(code: str, language: str = "") -> str:
    """A block of it; "" where there is none."""
    code = code.strip("\r\n").rstrip()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}{language}\n{code}\n{fence}" if code else ""


def _is_item(block: str) -> bool:
    return re.match(r"\s*+(?:> )*+\s*+(?:-|\d++\.)\s", block) is not None


@dataclass(frozen=True, slots=True)
class Cell:
    """Its blocks of text, and how many rows and columns it covers."""

    blocks: Sequence[str]
    rows: int = 1
    columns: int = 1
    is_escaped: bool = True

    @property
    def text(self) -> str:
        return " ".join(map(unescaped, self.blocks) if self.is_escaped else self.blocks)


class Table:
    """Collects rows of cells, in groups that no cell reaches out of."""

    def __init__(self) -> None:
        self._groups: list[list[list[Cell]]] = [[]]
        self._layout = False

    def add_group(self) -> None:
        self._groups.append([])

    def add_row(self) -> None:
        self._groups[-1].append([])

    def add_cell(self, cell: Cell, structured: bool) -> None:
        """A structured cell holds headings, code or tables itself."""
        if not self._groups[-1]:
            self.add_row()
        self._groups[-1][-1].append(cell)
        self._layout = self._layout or structured or len(cell.blocks) > LAYOUT_BLOCKS

    def blocks(self) -> list[str]:
        """One block of Markdown, or the blocks of all cells one after another when it only lays out the page."""
        rows = [row for group in self._groups for row in group]
        if self._layout or max(map(len, rows), default=0) < 2:
            return [block for row in rows for cell in row for block in cell.blocks]
        spread = _Spread(ROOM + TIMES * sum(len(cell.text) + BAR for row in rows for cell in row))
        table = grid(line for group in self._groups for line in spread.lines(group))
        return [table] if table else []


class _Spread:
    """Writes a cell into each place that it covers, so that a row tells by itself what it is about.

    Once the room is used up, cells cover one place: a few bytes may claim a million.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._above: dict[int, tuple[int, str]] = {}  # by column: the last row that a cell covers there, its text

    def lines(self, group: Sequence[Sequence[Cell]]) -> Iterator[list[str]]:
        self._above = {}
        for number, row in enumerate(group):
            if any(cell.text.strip() for cell in row):
                yield self._line(number, row)

    def _line(self, number: int, row: Sequence[Cell]) -> list[str]:
        self._above = {column: told for column, told in self._above.items() if told[0] >= number and self._room}
        parts_the_table = len(row) == 1 and not self._above  # and tells nothing of its columns
        line: list[str] = []
        for cell in row:
            self._add_above(line)
            text, first = cell.text, len(line)
            line.append(text)
            if not parts_the_table:
                line += [text] * self._granted(text, cell.columns - 1)
            if cell.rows > 1:
                self._above |= dict.fromkeys(range(first, len(line)), (number + cell.rows - 1, text))
        for column in sorted(column for column in self._above if column >= len(line)):
            line += [""] * self._granted("", column - len(line))
            self._add_above(line)
        return line

    def _add_above(self, line: list[str]) -> None:
        while len(line) in self._above and self._granted(self._above[len(line)][1], 1):
            line.append(self._above[len(line)][1])

    def _granted(self, text: str, times: int) -> int:
        """How many times there is room for it. Where it is not enough, nothing is repeated any more."""
        granted = min(times, self._room // (len(text) + BAR))
        self._room = self._room - granted * (len(text) + BAR) if granted == times else 0
        return granted


def grid(rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first row is the header; "" if all cells are blank."""
    filled = [[_cell(cell) for cell in row] for row in rows if any(cell.strip() for cell in row)]
    # Rows that are shorter than the header stay so: Markdown allows it, and one wide row must not widen a million.
    lines = [f"| {' | '.join(row)} |" for row in filled]
    return "\n".join([lines[0], f"|{' --- |' * len(filled[0])}", *lines[1:]]) if lines else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


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
