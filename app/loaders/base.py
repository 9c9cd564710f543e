"""What a loader gets and gives: the bytes of a file, and its text with the places that the text stands at.

A loader is a function from a Source to a Parsed, in a file of its own, with its suffixes in FORMATS. It raises
LoadError for whatever the bytes may hold, keeps nothing between calls, and may run in several threads at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeVar

from app.errors import LoadError, printable
from ragcache.errors import ConfigError

Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in PDF points from the top left corner of the page
MIB, MILLION = 1 << 20, 1_000_000
LONGEST_TITLE = 300  # characters; each chunk of the document is named by it
LONGEST_AUTHOR = 200  # of a comment, which is told with it


@dataclass(frozen=True)
class ParseLimits:
    """How large a file may be; compressed ones also when they are expanded."""

    max_bytes: int = 200 * MIB
    max_expanded_bytes: int = 400 * MIB
    # Of the parts of an office file that are read as a tree of XML, which takes many times its bytes of memory.
    max_xml_bytes: int = 64 * MIB
    # Of the text that comes out: a few bytes of a table, of nested values or of a reference may stand for any number.
    max_characters: int = 400 * MILLION
    max_pages: int = 100_000  # pages, slides, sheets, chapters
    max_cells: int = 50_000_000  # of a workbook, blank ones too: a row may say that it is the millionth
    max_memory: int = 4 << 30  # of the process that reads it, in bytes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ConfigError(f"{name}={value}: allow at least 1")


@dataclass(frozen=True)
class SourceFile:
    """A file that has been read, and the limits that hold for it."""

    path: Path
    data: bytes
    limits: ParseLimits

    @property
    def name(self) -> str:
        """The file's name without its suffix, as it can be shown and stored."""
        return printable(Path(self.path.stem))

    def error(self, reason: str) -> LoadError:
        return LoadError(self.path, reason)

    def bounded(self, parts: Iterable[str]) -> Iterator[str]:
        """The parts of its text. Raises LoadError as soon as they are too much together."""
        total = 0
        for part in parts:
            total += len(part)
            self.expect_characters(total)
            yield part

    def expect_characters(self, number: int) -> None:
        """Raises LoadError where there are too many."""
        if number > self.limits.max_characters:
            millions = self.limits.max_characters / MILLION
            raise self.error(f"gives more than {millions:,.1f} million characters of text: split it")

    def expect_pages(self, number: int, label: str) -> None:
        """Raises LoadError where there are too many."""
        if number > self.limits.max_pages:
            raise self.error(f"has more than {self.limits.max_pages:,} {label}s: split it")


@dataclass(frozen=True)
class Page:
    """`text[start:end]` stands on it. Numbers count from 1; the label is page, slide, sheet or chapter."""

    number: int
    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Line:
    """`text[start:end]` stands inside the box on a page of a PDF."""

    start: int
    end: int
    page: int
    box: Box


@dataclass(frozen=True)
class Place:
    """Where a piece of text stands: a page, and in a PDF the boxes of its lines there."""

    page: int
    label: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Parsed:
    """The text of a file. Offsets of pages and lines ascend and point into it; both are empty where there are none."""

    text: str
    kind: str  # for the splitter: prose, markdown, html, code, table, chat or items
    title: str
    pages: tuple[Page, ...] = ()
    lines: tuple[Line, ...] = ()

    def locate(self, start: int, end: int) -> list[Place]:
        """The places of `text[start:end]`, in order; none where the format has no pages."""
        return [
            Place(page.number, page.label, tuple(line.box for line in self._lines(start, end, page)))
            for page in _overlapping(self.pages, start, end)
        ]

    def around(self, start: int, end: int) -> tuple[tuple[Page, ...], tuple[Line, ...]]:
        """The pages and lines that `locate` tells of, with their offsets, in the same order."""
        pages = tuple(_overlapping(self.pages, start, end))
        return pages, tuple(line for page in pages for line in self._lines(start, end, page))

    def check_integrity(self) -> None:
        both: tuple[Sequence[Page | Line], ...] = (self.pages, self.lines)
        for spans in both:
            assert all(0 <= span.start <= span.end <= len(self.text) for span in spans), spans
            assert all(first.end <= second.start for first, second in pairwise(spans)), spans
        for line in self.lines:
            assert line.page in {place.page for place in self.locate(line.start, line.end)}, line
        self.text.encode("utf-8")  # no lone surrogates: it will be stored
        assert "\0" not in self.text

    def _lines(self, start: int, end: int, page: Page) -> Iterator[Line]:
        return _overlapping(self.lines, max(start, page.start), min(end, page.end))


def sendable_bytes(allowed: int) -> int:
    """Of a file that is sent: what no loader reads need not come."""
    return min(allowed, ParseLimits().max_bytes)


Loader = Callable[[SourceFile], Parsed]
Span = TypeVar("Span", Page, Line)


class PagedText:
    """Pages put together to one text, with a blank line between them. Raises LoadError above the limits."""

    def __init__(self, source: SourceFile, label: str) -> None:
        self._source = source
        self._label = label
        self._parts: list[str] = []
        self._length = 0
        self._pages: list[Page] = []

    def __len__(self) -> int:
        return len(self._pages)

    def add(self, number: int, text: str) -> int:
        """Appends a page -> where its text starts."""
        self._source.expect_pages(number, self._label)
        if self._pages:
            self._append("\n\n")
        start = self._length
        self._append(text)
        self._pages.append(Page(number, self._label, start, self._length))
        return start

    def parsed(self, kind: str, title: str, lines: tuple[Line, ...] = ()) -> Parsed:
        return Parsed("".join(self._parts), kind, title, tuple(self._pages), lines)

    def _append(self, text: str) -> None:
        self._source.expect_characters(self._length + len(text))
        self._parts.append(text)
        self._length += len(text)


def _overlapping(spans: tuple[Span, ...], start: int, end: int) -> Iterator[Span]:
    """Those that share a character with [start, end), or hold `start` if that is empty."""
    end = max(end, start + 1)
    first = bisect_right(spans, start, key=lambda span: span.end)
    for span in islice(spans, first, None):
        if span.start >= end:
            return
        yield span
