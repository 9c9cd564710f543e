"""From files to text with exact places.

    from app.loaders import load
    from app.loaders.base import Limits

    parsed = load(Path("report.pdf"), Limits())
    parsed.text[start:end], parsed.locate(start, end)

`load` is `parse` of what `read` gives: who hashes a file hashes exactly the bytes that it parses. The libraries that
read a format are imported when its first file comes.
"""

from __future__ import annotations

import re
from pathlib import Path

from app.errors import LoadError
from app.loaders.base import Parsed, ParseLimits, SourceFile
from app.loaders.file_bytes import read_file
from app.loaders.formats import FORMATS, LOADERS, format_of

# SQL stores neither NUL (PostgreSQL) nor half a character (UTF-8); JSON, HTML and PDF can write both.
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def load(path: Path, limits: ParseLimits | None = None) -> Parsed:
    """The text of a file and where it stands. Raises LoadError, whatever the file holds."""
    limits = limits or ParseLimits()
    refuse_unknown(path)
    return parse(path, read_file(path, limits), limits)


def parse(path: Path, data: bytes, limits: ParseLimits | None = None) -> Parsed:
    """The text of a file whose bytes `read_file` has read. Raises LoadError."""
    name = refuse_unknown(path)
    source = SourceFile(path, data, limits or ParseLimits())
    parsed = LOADERS[name]()(source)
    source.expect_characters(len(parsed.text))
    if not parsed.text or parsed.text.isspace():
        raise LoadError(path, "holds no text: there is nothing to ingest")
    return Parsed(_storable(parsed.text), parsed.kind, _storable(parsed.title), parsed.pages, parsed.lines)


def refuse_unknown(path: Path) -> str:
    """The name of the format. Raises LoadError for a suffix that no loader reads."""
    name = format_of(path)
    if name is None:
        told = f"the suffix {path.suffix.lower()!r}" if path.suffix else "no suffix"
        known = ", ".join(suffixes[0] for suffixes in FORMATS.values())
        if path.is_dir():
            raise LoadError(path, "is a folder, not a file: give the folder to ingest, which walks it")
        raise LoadError(path, f"has {told}, which no loader reads: convert or rename it to one of {known} …")
    return name


def _storable(text: str) -> str:
    """One character for one, so that offsets stay."""
    return UNSTORABLE.sub("�", text)
