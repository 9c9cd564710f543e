"""CSV and TSV, one item a row."""

from __future__ import annotations

import csv
from collections import Counter
from io import StringIO
from itertools import islice
from typing import Literal

from app.loaders.base import Parsed, Source
from app.loaders.encodings import decode
from app.loaders.rows import LOOK_AHEAD, rows_as_items

DELIMITERS = "\t;|,"
SAMPLE = 1 << 16


def load_table(source: Source) -> Parsed:
    text = decode(source)
    # The limit of 128 KiB a field belongs to the process; articles in cells are longer, and our own limit holds.
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    delimiter = _delimiter(text) if source.path.suffix.lower() == ".csv" else "\t"
    plain = delimiter == "\t" and '"' in text and not _quoted(text)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
    try:
        return Parsed("\n\n".join(source.bounded(rows_as_items(reader))), "items", source.name)
    except csv.Error as error:
        raise source.error(f"is no table at line {reader.line_num} ({error}): mend that line") from error


def _delimiter(text: str) -> str:
    """What cuts most of the first rows into the same number of columns: titles and decimal commas do not."""
    return max(DELIMITERS[::-1], key=lambda one: _agreement(text[:SAMPLE], one))


def _agreement(sample: str, delimiter: str) -> tuple[int, bool, int]:
    rows = csv.reader(StringIO(sample, newline=""), delimiter=delimiter)
    widths = Counter(len(row) for row in islice(filter(None, rows), LOOK_AHEAD) if len(row) > 1)
    width, number = max(widths.items(), key=lambda one: (one[1], one[0]), default=(1, 0))
    return number, delimiter != ",", width  # where two agree as well, commas are more likely within cells


def _quoted(text: str) -> bool:
    """Whether the quotes of a table with tabs enclose cells: one that stands for itself would swallow rows."""
    reader = csv.reader(StringIO(text, newline=""), delimiter="\t", strict=True)
    try:
        return not any("\t" in cell and ("\n" in cell or "\r" in cell) for row in reader for cell in row)
    except csv.Error:
        return False
