"""How results are shown: aligned for people, whatever their names hold, or as JSON."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

from app.errors import CollectionBusy, on_one_line
from ragcache.errors import RagcacheError

# What a command tells in a line. All else is a bug, or an interrupt.
FAILURES = (RagcacheError, OSError, MemoryError)
JOINERS = "\u200c\u200d"
LATER = 75  # as sysexits has it: the same command may succeed in a while


def error_line(error: BaseException) -> str:
    """An error in a line."""
    return f"error: {plain(' '.join(str(error).split())) or 'out of memory'}"


def exit_code(error: BaseException) -> int:
    return LATER if isinstance(error, RagcacheError) and error.status == CollectionBusy.status else 1


def plain(text: str) -> str:
    """On one line, and harmless to a terminal: what cannot be printed is written as an escape."""
    return on_one_line(text)


def width(text: str) -> int:
    """Columns of a terminal."""
    return sum(_columns(sign) for sign in text)


def _columns(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me") or sign in JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def table(titles: Sequence[str], rows: Sequence[Sequence[object]], right: Collection[str] = ()) -> str:
    """Columns under their titles, those named in `right` aligned to the right. The last one is never padded."""
    lines = [[*titles], *([plain(str(cell)) for cell in row] for row in rows)]
    widths = [max(width(line[place]) for line in lines) for place in range(len(titles))]
    return "\n".join(_line(line, widths, [title in right for title in titles]) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, wanted, to_right in zip(cells, widths, right, strict=True):
        gap = " " * (wanted - width(cell))
        padded.append(gap + cell if to_right else cell + gap)
    return "  ".join(padded).rstrip()


def fields(of: object, *names: str) -> dict[str, Any]:
    """Some of them, for JSON."""
    return {name: getattr(of, name) for name in names}


def print_json(value: Any) -> None:
    """ASCII, so that any name survives any terminal and pipe."""
    print(json.dumps(value, indent=2))
