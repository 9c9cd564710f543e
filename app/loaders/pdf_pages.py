"""Pages of a PDF document as they are shown: an image of one, and where parts of its lines stand on it.

PDFium computes as long as a document asks it to: who shows documents of others does so in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import sqrt
from typing import Any

from pypdfium2 import PdfiumError

from app.loaders.base import Box, SourceFile
from app.loaders.pdf import PDFIUM, box_of, characters_of, open_pdf, spans_of
from app.loaders.soundness import PDF, reading

POINTS = 72.0  # to an inch
MOST_PIXELS = 16_000_000  # 2000 by 8000, or 4000 by 4000: 64 MB while it is drawn
LONGEST = 10_000  # pixels of a side
SAME = 0.5  # points that a line's box may be off by: it was told by the same PDFium, perhaps an older one


@dataclass(frozen=True)
class LinePart:
    """`text[start:end]` of a line, which stands in the box."""

    text: str
    box: Box
    start: int
    end: int


@dataclass(frozen=True)
class PagePlaces:
    """The size of a page, in points, and a box for each part of a line; None where PDFium tells none of it."""

    width: float
    height: float
    boxes: tuple[Box | None, ...]


class NoSuchPage(Exception):
    """The document has `count` pages, and not this one."""

    def __init__(self, count: int):
        super().__init__(count)
        self.count = count


def draw_page(source: SourceFile, number: int, dpi: int) -> bytes:
    """A PNG, with what is filled in. Of a page too large for so many dots per inch as many as are allowed. Raises
    LoadError and NoSuchPage.
    """
    image = BytesIO()
    with _page(source, number) as page, reading(source, f"page {number} of {PDF.name}", PdfiumError):
        width, height = page.get_size()
        scale = _scale(width, height, wanted=dpi / POINTS)
        with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
            bitmap.to_pil().save(image, "PNG")
    return image.getvalue()


def find_places(source: SourceFile, number: int, parts: Sequence[LinePart]) -> PagePlaces:
    """Raises LoadError and NoSuchPage."""
    with _page(source, number) as page, reading(source, f"page {number} of {PDF.name}", PdfiumError):
        width, height = page.get_size()
        if not parts:
            return PagePlaces(width, height, ())
        with closing(page.get_textpage()) as letters:
            characters = characters_of(letters)
            rows = list(spans_of(characters))
            boxes = tuple(_part(page, letters, characters, rows, part) for part in parts)
    return PagePlaces(width, height, boxes)


@contextmanager
def _page(source: SourceFile, number: int) -> Iterator[Any]:
    with PDFIUM, closing(open_pdf(source)) as document:
        with reading(source, PDF.name, PdfiumError):
            document.init_forms()
            count = len(document)
        if not 1 <= number <= count:
            raise NoSuchPage(count)
        with reading(source, f"page {number} of {PDF.name}", PdfiumError):
            page = document[number - 1]
        with closing(page):
            yield page


def _scale(width: float, height: float, wanted: float) -> float:
    """Of a page with sides of so many points, so that no image is larger than allowed."""
    by_area = sqrt(MOST_PIXELS / max(width * height, 1.0))
    return min(wanted, by_area, LONGEST / max(width, height, 1.0))


def _part(
    page: Any, letters: Any, characters: list[str], rows: list[tuple[int, int, str]], part: LinePart
) -> Box | None:
    """By the line of the page that has the same text in the same place: what is filled in is drawn as no text."""
    for first, last, text in rows:
        if text == part.text and _near(box_of(page, letters, first, last), part.box):
            start, end = _indices(characters, first, last, part)
            return box_of(page, letters, start, end) if start < end else None
    return None


def _near(one: Box, other: Box) -> bool:
    return all(abs(here - there) <= SAME for here, there in zip(one, other, strict=True))


def _indices(characters: list[str], first: int, last: int, part: LinePart) -> tuple[int, int]:
    """PDFium's, of a part of the text of the line at [first, last): some of its indices have no character, and the
    white space at its ends is not in the text.
    """
    line = characters[first : min(last, len(characters))]
    skipped = len("".join(line)) - len("".join(line).lstrip())
    wanted = range(part.start + skipped, part.end + skipped)
    offset, found = 0, []
    for index, one in enumerate(line, start=first):
        if one and offset in wanted:
            found.append(index)
        offset += len(one)
    return (found[0], found[-1] + 1) if found else (0, 0)
