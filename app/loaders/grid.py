"""Tables in Markdown, and which tables of a page are there for its layout only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

LAYOUT_BLOCKS = 3  # a cell with more paragraphs than this is no datum
BAR = 3  # characters of Markdown around a cell
# What cells may take that are repeated, in characters: so much, and so many times the text of the table itself.
ROOM = 10_000
TIMES = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """Its blocks of text, and how many rows and columns it covers."""

    blocks: Sequence[str]
    rows: int = 1
    columns: int = 1

    @property
    def text(self) -> str:
        return " ".join(self.blocks)


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
