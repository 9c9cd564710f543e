"""CSV and TSV, one item a row."""

from __future__ import annotations

import csv
from collections import Counter
from io import StringIO

from app.loaders.base import Parsed, Source
from app.loaders.encodings import decode
from app.loaders.rows import rows_as_items

DELIMITERS = ",;\t|"


def load_table(source: Source) -> Parsed:
    text = decode(source)
    # The limit of 128 KiB a field belongs to the process; articles in cells are longer, and our own limit holds.
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.reader(StringIO(text, newline=""), delimiter=_delimiter(source, text))
    try:
        return Parsed("\n\n".join(source.bounded(rows_as_items(reader))), "items", source.name)
    except csv.Error as error:
        raise source.error(f"is no table at line {reader.line_num} ({error}): mend that line") from error


def _delimiter(source: Source, text: str) -> str:
    """Tab by its suffix, otherwise what the first line has most of outside quotes."""
    if source.path.suffix.lower() != ".csv":
        return "\t"
    line = text.lstrip().partition("\n")[0]
    outside = "".join(line.split('"')[::2])
    counts = Counter(one for one in outside if one in DELIMITERS)
    return max(DELIMITERS, key=lambda one: counts[one])  # a comma where there is none: a table of one column
