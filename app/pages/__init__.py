"""Pages of documents for whoever reads them: images, and where a part of a document's text stands on a page.

They are drawn from the file that the document was made of, and of nothing else: one that a client has sent is kept
(`Originals`), one that this machine has ingested must be where it was, with the same content.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.errors import NotFound, PagesBusy
from app.library import Library
from app.library.catalog.records import Document, DocumentLayout
from app.library.originals import SCHEME, Originals, is_kept
from app.loaders.base import Box
from app.loaders.pdf_pages import LinePart
from app.pages.process import DrawingLimits, PageLook

AT_ONCE = 2  # processes
WAITING = 8  # requests, each of which holds a thread
KEPT = 64 << 20  # bytes of images
LIMITS = DrawingLimits()


@dataclass(frozen=True)
class TextBox:
    """`text[start:end]` of the document stands in it. Fractions of the page, from its top left corner."""

    start: int
    end: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class PageBoxes:
    """Of a page whose text is `text[start:end]` of the document. Its sides are in points."""

    width: float
    height: float
    start: int
    end: int
    boxes: tuple[TextBox, ...]


class Pages:
    """Threads share it. Raises NotFound for what cannot be shown, LoadError for a file that PDFium does not come to an
    end with, and PagesBusy.
    """

    def __init__(self, library: Library):
        self._documents, self._originals = library.catalog.documents, Originals(library)
        self._entered = threading.BoundedSemaphore(AT_ONCE + WAITING)
        self._running = threading.BoundedSemaphore(AT_ONCE)
        self._images = ImageCache(KEPT)

    def image(self, document: Document, number: int, dpi: int) -> bytes:
        """A PNG."""
        look, key = self._look(document, number), (document.content_hash, number, dpi)
        found = self._images.get(key)
        if found is None:
            with self._turn():
                found = look.image(dpi, LIMITS)
            self._images.put(key, found)
        return found

    def boxes(self, document: Document, number: int, start: int | None = None, end: int | None = None) -> PageBoxes:
        """Of the text from `start` to `end`, as far as it stands on the page: a box in each of its lines. Of a line
        that PDFium does not tell in parts, such as one that is filled in, the whole.
        """
        look = self._look(document, number)
        with self._turn():
            return self._boxes(look, self._documents.page_layout(document.id, number), start, end)

    def _boxes(self, look: PageLook, layout: DocumentLayout, start: int | None, end: int | None) -> PageBoxes:
        page = next((one for one in layout.pages if one.number == look.number), None)
        if page is None:
            raise NotFound(f"{look.name!r} has no page {look.number}: it has {len(layout.pages):,} pages")
        first = max(page.start, page.start if start is None else start)
        last = min(page.end, page.end if end is None else end)
        lines = [one for one in layout.lines if one.start < last and first < one.end]
        spans = [(max(one.start, first), min(one.end, last)) for one in lines]
        parts = {
            one: LinePart(layout.text[one.start : one.end], one.box, begin - one.start, stop - one.start)
            for one, (begin, stop) in zip(lines, spans, strict=True)
            if (begin, stop) != (one.start, one.end)
        }
        width, height, told = look.places([*parts.values()], LIMITS)
        exact = dict(zip(parts, told, strict=True))
        found = [(*span, exact.get(line) or line.box) for line, span in zip(lines, spans, strict=True)]
        return PageBoxes(width, height, page.start, page.end, tuple(_within(found, width, height)))

    def _look(self, document: Document, number: int) -> PageLook:
        name = document.source.removeprefix(SCHEME)
        if document.state != "ready" or not is_kept(name):
            raise NotFound(f"{name!r} has no pages that could be shown: it is no PDF document")
        kept = self._originals.path(document.content_hash)
        for path in (kept, Path(document.source)):
            if path.is_absolute() and path.is_file():
                return PageLook(path, document.content_hash, number, name)
        raise NotFound(f"the file of {name!r} is no longer there: ingest it again")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._entered.acquire(blocking=False):
            raise PagesBusy(f"{AT_ONCE + WAITING} pages are being drawn or wait for it: ask for this one later")
        try:
            with self._running:
                yield
        finally:
            self._entered.release()


def _within(found: Sequence[tuple[int, int, Box]], width: float, height: float) -> Iterator[TextBox]:
    """As fractions of the page; without what stands beside it."""
    for start, end, box in found:
        left, right = (min(max(side / width, 0.0), 1.0) for side in (box[0], box[2]))
        top, bottom = (min(max(side / height, 0.0), 1.0) for side in (box[1], box[3]))
        if left < right and top < bottom:
            yield TextBox(start, end, left, top, right, bottom)


class ImageCache:
    """Images by what they show, those that were asked for last; no more than so many bytes."""

    def __init__(self, most: int):
        self._most = most
        self._images = OrderedDict[tuple[str, int, int], bytes]()
        self._lock = threading.Lock()
        self.nbytes = 0

    def get(self, key: tuple[str, int, int]) -> bytes | None:
        with self._lock:
            found = self._images.get(key)
            if found is not None:
                self._images.move_to_end(key)
            return found

    def put(self, key: tuple[str, int, int], image: bytes) -> None:
        with self._lock:
            self.nbytes += len(image) - len(self._images.pop(key, b""))
            self._images[key] = image
            while self.nbytes > self._most:
                _, gone = self._images.popitem(last=False)
                self.nbytes -= len(gone)
