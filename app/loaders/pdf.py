"""PDF documents: the text in the order that it was written in, with the box of every line.

PDFium keeps state for the whole process and is not safe between threads, so each call of it, closing included, happens
under one lock. The lock is given up between pages, so that a book does not hold up letters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from ctypes import byref, c_double, c_int
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pypdfium2 import PdfDocument, PdfiumError, raw

from app.errors import printable
from app.loaders.base import Box, Line, PagedText, Parsed, SourceFile
from app.loaders.comments import comments_on, has_words
from app.loaders.soundness import PDF, expect, reading

PDFIUM = Lock()
SCALE = 100  # PDFium gives places on a device in whole pixels; this many make a point
HYPHEN = "\x02"  # at the end of a line, in PDFium's words; the next line follows at once
UNTITLED = ("", "untitled")  # what programs write without being asked
GAP = 0.75  # of the height of a line: a wider gap to the next one parts paragraphs
MOST_NOTES = 5_000  # and fields of a page: PDFium takes quadratic time for them, 0.2 s for so many
NO_TEXT = "has no text, only images: run OCR first, for example `ocrmypdf scanned.pdf text.pdf`, and ingest its result"
SOME_TEXT = (
    "%s: %d of %d pages have images and no text: run OCR first, for example "
    "`ocrmypdf --skip-text scanned.pdf text.pdf`, and ingest its result"
)
NO_FIELDS = "%s: what is filled in or noted on page %d is left out: its letters would hide those of the page"
MANY_NOTES = "%s: what is filled in or noted on page %d is left out: it has more than %d fields and notes"
logger = logging.getLogger(__name__)
_Place = tuple[str, float, float]  # a character and its origin, in points


@dataclass(frozen=True)
class _Row:
    """A line of a page, and where it stands."""

    text: str
    box: Box
    starts: bool = False  # a paragraph, wherever the row above it stands


def load_pdf(source: SourceFile) -> Parsed:
    expect(source, PDF)
    with PDFIUM:
        document, unchanged = open_pdf(source), _Unchanged(source)
    try:
        return _parsed(unchanged, document)  # the source is held as long: PDFium reads its bytes where they lie
    finally:
        with PDFIUM:
            unchanged.close()
            document.close()


def open_pdf(source: SourceFile) -> Any:
    """Not by PdfDocument(data): that tells a document without pages by the error of whatever was opened before."""
    opened = raw.FPDF_LoadMemDocument64(source.data, len(source.data), None)
    if not opened:
        if raw.FPDF_GetLastError() == raw.FPDF_ERR_PASSWORD:
            raise source.error("is encrypted: save it without its password, for example by `qpdf --decrypt`")
        raise source.error(
            "is damaged or cut short and cannot be read as a PDF document: get the file again, or repair it, for "
            "example by `qpdf`"
        )
    if raw.FPDF_GetPageCount(opened) < 1:
        raw.FPDF_CloseDocument(opened)
        raise source.error("has no pages: there is nothing to ingest")
    return PdfDocument(opened)  # which closes it


class _Unchanged:
    """The document as it was written: opened a second time, but not before a page of it is asked for."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self._document: Any = None

    def copy(self, index: int) -> Any:
        """A document with nothing but a copy of the page, which inherits nothing."""
        if self._document is None:
            self._document = open_pdf(self.source)
            self._document.init_forms()
        with closing(self._document[index]):  # PDFium draws fields that no program has drawn when it opens a page
            alone = PdfDocument.new()
            alone.import_pages(self._document, [index])
        return alone

    def close(self) -> None:
        if self._document is not None:
            self._document.close()


def _parsed(unchanged: _Unchanged, document: Any) -> Parsed:
    source = unchanged.source
    pages, lines, scans = PagedText(source, "page"), list[Line](), 0
    with PDFIUM, reading(source, PDF.name, PdfiumError):
        document.init_forms()  # or what is filled in is no text where a program has not drawn it too
        count = len(document)
        title = _title(document)
    source.expect_pages(count, "page")
    for number in range(1, count + 1):
        with PDFIUM, reading(source, f"page {number} of {PDF.name}", PdfiumError):
            rows, is_scan = _read(document, number - 1, unchanged)
        scans += is_scan
        text, spans = _set(rows)
        start = pages.add(number, text)
        lines.extend(
            Line(start + first, start + last, number, row.box) for (first, last), row in zip(spans, rows, strict=True)
        )
    if not lines:
        raise source.error(NO_TEXT)
    if scans:
        logger.warning(SOME_TEXT, printable(source.path), scans, count)
    return pages.parsed("prose", title or source.name, tuple(lines))


def _title(document: Any) -> str:
    """What the document calls itself, "" where that is no title."""
    try:
        written = " ".join(document.get_metadata_value("Title").split())
    except UnicodeDecodeError:  # half a character
        return ""
    return "" if written.lower() in UNTITLED else written


def _set(rows: list[_Row]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a page and the offsets of its lines: a blank line where a paragraph or a column ends."""
    parts, spans, length = list[str](), list[tuple[int, int]](), 0
    for index, row in enumerate(rows):
        if index:
            parts.append("\n\n" if row.starts or _apart(rows[index - 1].box, row.box) else "\n")
            length += len(parts[-1])
        spans.append((length, length + len(row.text)))
        parts.append(row.text)
        length += len(row.text)
    return "".join(parts), spans


def _apart(first: Box, second: Box) -> bool:
    height = min(first[3] - first[1], second[3] - second[1])
    return not -first[3] + first[1] <= second[1] - first[3] <= GAP * height


def _read(document: Any, index: int, unchanged: _Unchanged) -> tuple[list[_Row], bool]:
    """The lines of a page and the comments on it; whether it has no lines, and an image where they may stand."""
    page = document[index]
    try:
        number = _count_notes(page)
        has_notes = 0 < number <= MOST_NOTES
        if number > MOST_NOTES:
            logger.warning(MANY_NOTES, printable(unchanged.source.path), index + 1, MOST_NOTES)
        rows, is_scan, places = _seen(page, placed=has_notes)
        comments = list(_comments(page, number, unchanged.source)) if has_notes else []
        if has_notes and _flattened(page):
            page.close()
            page = document[index]
            flat_rows, is_flat_scan, flat_places = _seen(page, placed=True)
            if not places <= flat_places:  # PDFium hides resources that the page inherits: letters change or vanish
                flat_rows, is_flat_scan, flat_places = _seen_apart(unchanged, index)
            if places <= flat_places:
                rows, is_scan = flat_rows, is_scan or is_flat_scan
            else:
                logger.warning(NO_FIELDS, printable(unchanged.source.path), index + 1)
        return rows + list(_undrawn(comments, rows)), is_scan and not rows
    finally:
        page.close()


def _seen_apart(unchanged: _Unchanged, index: int) -> tuple[list[_Row], bool, set[_Place]]:
    """The page with what is filled in, as `_seen`, where it has the resources itself that it inherited."""
    try:
        with closing(unchanged.copy(index)) as alone:
            with closing(alone[0]) as page:
                _flattened(page)
            with closing(alone[0]) as page:
                return _seen(page, placed=True)
    except PdfiumError:  # it could be read, and cannot be copied
        return [], False, set()


def _undrawn(comments: list[list[_Row]], rows: list[_Row]) -> Iterator[_Row]:
    """All but captions of measures and what was marked: the page has their words already, where they stand."""
    for lines in comments:
        left, top, right, bottom = lines[0].box
        touched = (row for row in rows if row.box[0] <= right and left <= row.box[2])
        text = " ".join(row.text for row in touched if row.box[1] <= bottom and top <= row.box[3])
        if not has_words(text, "".join(line.text for line in lines)):
            yield from lines


def _comments(page: Any, number: int, source: SourceFile) -> Iterator[list[_Row]]:
    for lines, (left, bottom, right, top) in comments_on(page, number, source):
        across, down = zip(_shown(page, left, top), _shown(page, right, bottom), strict=True)
        box = (min(across), min(down), max(across), max(down))
        yield [_Row(line, box, starts=not index) for index, line in enumerate(lines)]


def _count_notes(page: Any) -> int:
    return int(raw.FPDFPage_GetAnnotCount(page))


def _seen(page: Any, placed: bool) -> tuple[list[_Row], bool, set[_Place]]:
    """The lines of the page as it is now; whether it has images only; where its letters stand, if asked for."""
    with closing(page.get_textpage()) as letters:
        characters = characters_of(letters)
        rows = [_Row(text, box_of(page, letters, start, end)) for start, end, text in spans_of(characters)]
        places = _places(letters, characters) if placed else set()
    return rows, not rows and any(True for _ in page.get_objects([raw.FPDF_PAGEOBJ_IMAGE])), places


def _places(letters: Any, characters: list[str]) -> set[_Place]:
    """Of letters and digits: what stands beside a hyphen or a bracket may change it."""
    places, across, up = set[_Place](), c_double(), c_double()
    for index, one in enumerate(characters):
        if one.isalnum() and raw.FPDFText_GetCharOrigin(letters.raw, index, byref(across), byref(up)):
            places.add((one, round(across.value, 3), round(up.value, 3)))
    return places


def _flattened(page: Any) -> bool:
    """Whether what is filled in and noted on the page became a part of its text, which it is from the next look on."""
    box = page.get_bbox()
    page.set_mediabox(*box)  # PDFium knows no inherited boxes here, and would make it a page of US letter
    page.set_cropbox(*box)
    return bool(raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY) == raw.FLATTEN_SUCCESS)


def characters_of(letters: Any) -> list[str]:
    """One string per index of PDFium's, which may be empty: its own text has other indices."""
    codes = [raw.FPDFText_GetUnicode(letters.raw, index) for index in range(letters.count_chars())]
    found = []
    for index, code in enumerate(codes):
        if 0xD800 <= code < 0xDC00 and index + 1 < len(codes) and 0xDC00 <= codes[index + 1] < 0xE000:
            code = 0x10000 + ((code - 0xD800) << 10) + codes[index + 1] - 0xDC00
        elif 0xD800 <= code < 0xE000 or code in (0, 0xFFFE, 0xFFFF) or code > 0x10FFFF:
            code = 0  # the second half of a pair, or no character
        found.append(chr(code) if code else "")
    return found


def spans_of(characters: list[str]) -> Iterator[tuple[int, int, str]]:
    """Lines that are not blank, without the white space at their ends: the indices of their characters, their text."""
    start = 0
    for index, one in enumerate([*characters, "\n"]):
        if one not in ("\n", "\r", HYPHEN):
            continue
        line = characters[start:index] + (["-"] if one == HYPHEN else [])
        text = "".join(line).strip()
        if text:
            yield start, start + len(line), text
        start = index + 1


def box_of(page: Any, letters: Any, start: int, end: int) -> Box:
    """Around the rectangles of the characters, as the page is shown: turned and cropped."""
    corners = []
    for index in range(letters.count_rects(start, end - start)):
        left, bottom, right, top = letters.get_rect(index)
        corners += [_shown(page, left, top), _shown(page, right, bottom)]
    if not corners:
        return (0.0, 0.0, 0.0, 0.0)
    across, down = zip(*corners, strict=True)
    return (min(across), min(down), max(across), max(down))


def _shown(page: Any, across: float, up: float) -> tuple[float, float]:
    width, height = (round(side * SCALE) for side in page.get_size())
    x, y = c_int(), c_int()
    raw.FPDF_PageToDevice(page.raw, 0, 0, width, height, 0, c_double(across), c_double(up), byref(x), byref(y))
    return x.value / SCALE, y.value / SCALE
