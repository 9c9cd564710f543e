"""Tables in Markdown, and which tables of a page are there for its layout only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LAYOUT_BLOCKS = 3  # a cell with more paragraphs than this is no datum


class Table:
    """Collects rows of cells; a cell is its blocks of text."""

    def __init__(self) -> None:
        self._rows: list[list[list[str]]] = []
        self._layout = False

    def add_row(self) -> None:
        self._rows.append([])

    def add_cell(self, blocks: list[str], structured: bool) -> None:
        """A structured cell holds headings, code or tables itself."""
        if not self._rows:
            self.add_row()
        self._rows[-1].append(blocks)
        self._layout = self._layout or structured or len(blocks) > LAYOUT_BLOCKS

    def blocks(self) -> list[str]:
        """One block of Markdown, or the blocks of all cells one after another when it only lays out the page."""
        if self._layout or max(map(len, self._rows), default=0) < 2:
            return [block for row in self._rows for cell in row for block in cell]
        table = grid([" ".join(cell) for cell in row] for row in self._rows)
        return [table] if table else []


def grid(rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first row is the header; "" if all cells are blank."""
    filled = [[_cell(cell) for cell in row] for row in rows if any(cell.strip() for cell in row)]
    # Rows that are shorter than the header stay so: Markdown allows it, and one wide row must not widen a million.
    lines = [f"| {' | '.join(row)} |" for row in filled]
    return "\n".join([lines[0], f"|{' --- |' * len(filled[0])}", *lines[1:]]) if lines else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
