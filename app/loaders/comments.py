"""What reviewers wrote beside the text of a PDF's page: no program draws it on the page, so it is read by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ctypes import byref, c_ushort
from itertools import accumulate
from typing import Any

from pypdfium2 import raw

from app.loaders.base import Box, SourceFile

# The texts of other notes are drawn (fields, typed notes) or are no text of a reader's (links, films).
COMMENTS = (
    *("TEXT", "HIGHLIGHT", "UNDERLINE", "STRIKEOUT", "SQUIGGLY", "CARET"),
    *("SQUARE", "CIRCLE", "LINE", "POLYGON", "POLYLINE", "INK"),
)
WORDS = re.compile(r"\w+|[^\w\s]")  # and signs


def comments_on(page: Any, count: int, source: SourceFile) -> Iterator[tuple[list[str], Box]]:
    """The lines of each of the first `count` notes that has any, and its left, bottom, right and top on the page."""
    subtypes = {getattr(raw, f"FPDF_ANNOT_{name}") for name in COMMENTS}
    total = 0
    for index in range(count):
        note = raw.FPDFPage_GetAnnot(page, index)
        if not note:
            continue
        try:
            is_hidden = raw.FPDFAnnot_GetFlags(note) & raw.FPDF_ANNOT_FLAG_HIDDEN  # tells the state of a review
            if raw.FPDFAnnot_GetSubtype(note) in subtypes and not is_hidden:
                size = raw.FPDFAnnot_GetStringValue(note, b"Contents", None, 0)
                total += size // 2
                source.expect_characters(total)  # before it is copied: many notes may have the same text
                lines = _lines(note, size)
                if lines:
                    yield lines, _place(note)
        finally:
            raw.FPDFPage_CloseAnnot(note)


def has_words(text: str, said: str) -> bool:
    """Whether the words stand in the text, as whole ones; white space counts as none, for PDFs have it anywhere."""
    letters, sought = "".join(text.split()), "".join(said.split())
    start = letters.find(sought)
    ends = set(accumulate(map(len, WORDS.findall(text)), initial=0)) if start >= 0 else set()
    while start >= 0 and not {start, start + len(sought)} <= ends:
        start = letters.find(sought, start + 1)
    return start >= 0


def _lines(note: Any, size: int) -> list[str]:
    units = (c_ushort * (size // 2 + 1))()
    raw.FPDFAnnot_GetStringValue(note, b"Contents", units, size)
    text = bytes(units).decode("utf-16-le", "ignore").replace("\0", "")  # half a character is none
    return [line.strip() for line in text.splitlines() if line.strip()]


def _place(note: Any) -> Box:
    corners = raw.FS_RECTF()
    raw.FPDFAnnot_GetRect(note, byref(corners))
    return corners.left, corners.bottom, corners.right, corners.top
