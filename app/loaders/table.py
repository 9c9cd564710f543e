"""CSV and TSV, one item a row."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import chain, islice, pairwise, tee
from typing import TYPE_CHECKING, Literal

from app.loaders.base import Parsed, SourceFile
from app.loaders.blocks import LOOK_AHEAD, rows_as_items
from app.loaders.encodings import decode

if TYPE_CHECKING:
    from _csv import Reader  # csv.Reader is of Python 3.13

DELIMITERS = "\t;|,"
SAMPLE = 1 << 16
# A first line by which Excel is told the delimiter; it is no part of the table.
TOLD = re.compile(r'("?)sep=([^\w\s"]|\t)\1(?:\r\n?|\n|\Z)', re.IGNORECASE)
STANDING = "\0"  # for a quote that encloses nothing, while rows are cut; no text holds it


def load_table(source: SourceFile) -> Parsed:
    text = decode(source)
    # The limit of 128 KiB a field belongs to the process; articles in cells are longer, and our own limit holds.
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    if told := TOLD.match(text):
        text, delimiter = text[told.end() :], told[2]
    else:
        delimiter = _delimiter(text) if source.path.suffix.lower() == ".csv" else "\t"
    guarded = _guarded(text, delimiter)
    plain = delimiter == "\t" and '"' in text and not _quoted(text, guarded)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
    reader = _reader(StringIO(text if plain else guarded, newline=""), delimiter, quoting)
    rows = ([cell.replace(STANDING, '"') for cell in row] for row in reader)
    try:
        return Parsed("\n\n".join(source.bounded(rows_as_items(rows))), "items", source.name)
    except csv.Error as error:
        raise source.error(f"is no table at line {reader.line_num} ({error}): mend that line") from error


def _delimiter(text: str) -> str:
    """What cuts most of the first rows into the same number of columns: titles and decimal commas do not."""
    return max(DELIMITERS[::-1], key=lambda one: _agreement(text, one))


def _agreement(text: str, delimiter: str) -> tuple[float, float, int, bool, int]:
    """The share of the first rows with the commonest width: of those whose quotes enclose cells, then of all.

    Shares, as a false delimiter cuts a quoted cell of many lines into many rows. Where two tie, a title above the
    header breaks the row of the false one; where they still do, commas are more likely within cells.
    """
    cut = len(text) > SAMPLE
    sample = StringIO(_guarded(text[:SAMPLE], delimiter, cut), newline="")
    end = "|\\Z" if cut else ""  # the sample may end within a cell
    mark = re.escape(delimiter)
    enclosing = re.compile(rf'(?:\A|(?<={mark})) *"(?:[^"]|"")*(?:"(?= *(?:{mark}|[\r\n]|\Z)){end})')
    rows: list[tuple[int, bool]] = []
    within = False  # a quote of an earlier row is still open
    for width, raw in islice(_widths(sample, delimiter), LOOK_AHEAD):
        rows.append((width, not within and STANDING not in raw and '"' not in enclosing.sub("", raw)))
        within ^= raw.count('"') % 2 == 1
    widths = Counter(width for width, _ in rows if width > 1)
    if not widths:
        return 0, 0, 0, delimiter != ",", 1
    width, number = max(widths.items(), key=lambda one: (one[1], one[0]))
    sound = rows.count((width, True))
    together = sum(one[0] == other[0] == width for one, other in pairwise(rows))
    return sound / len(rows), number / len(rows), together, delimiter != ",", width


def _reader(lines: Iterable[str], delimiter: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> Reader:
    """Spaces may stand before a quote: cells lose theirs in any case. In a TSV a space is a part of its value."""
    return csv.reader(lines, delimiter=delimiter, quoting=quoting, skipinitialspace=delimiter != "\t")


def _guarded(text: str, delimiter: str, cut: bool = False) -> str:
    """The text with STANDING for each quote that opens a cell and encloses none, which would swallow the next rows.

    A cell of several lines ends with a quote before a delimiter or a line end, or where the text was cut.
    """
    if '"' not in text:
        return text
    mark, spaces = re.escape(delimiter), "" if delimiter == "\t" else " *+"
    end = r"|\Z" if cut else ""
    enclosed = rf'[^"]*+(?:""[^"]*+)*+(?:"(?= *+(?:{mark}|[\r\n]|\Z)){end})'
    on_a_line = r'[^"\r\n]*+(?:""[^"\r\n]*+)*+"'  # what follows its second quote belongs to the cell too
    opening = re.compile(rf'(?:\A|(?<=[{mark}\r\n]))({spaces})"(?P<cell>{enclosed}|{on_a_line})?+')
    return opening.sub(lambda found: f"{found[1]}{STANDING}" if found["cell"] is None else found[0], text)


def _widths(sample: StringIO, delimiter: str) -> Iterator[tuple[int, str]]:
    """The width of each row that is not empty, with the text it was read from."""
    raws, lines = tee(sample)
    reader, read = _reader(lines, delimiter), 0
    for row in reader:
        raw = "".join(islice(raws, reader.line_num - read))
        read = reader.line_num
        if row:
            yield len(row), raw


def _quoted(text: str, guarded: str) -> bool:
    """Whether the quotes of a table with tabs enclose cells: two that stand for themselves would swallow rows."""
    return "\t" not in text or _full_rows(guarded, csv.QUOTE_MINIMAL) >= _full_rows(text, csv.QUOTE_NONE)


def _full_rows(text: str, quoting: Literal[0, 3]) -> int:
    """How many rows are as wide as the first that is no title."""
    reader = _reader(StringIO(text, newline=""), "\t", quoting)
    widths = (len(row) for row in reader if row)
    ahead = list(islice(widths, LOOK_AHEAD))
    header = next((width for width in ahead if width * 2 >= max(ahead)), 0)
    return sum(width == header for width in chain(ahead, widths))
