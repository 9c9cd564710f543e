"""OpenDocument presentations as Markdown: a page per slide, its title a heading, then its shapes from the top left."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.loaders.base import PagedText, Parsed, SourceFile
from app.loaders.marks import behind, unescaped
from app.loaders.odml import (
    CONTENT,
    OfficeStyles,
    read_part,
    refuse_encrypted,
    styles_of,
    tell_left_out,
    title_of,
)
from app.loaders.odml_text import OfficeText
from app.loaders.soundness import ODP, opened
from app.loaders.text import first_heading

SLIDE, NOTES = "draw:page", "presentation:notes"
CLASS = "presentation:class"
NUMBERS = ("page-number", "date-time", "header", "footer")  # classes of shapes that each slide repeats
LENGTH = re.compile(r"(-?\d{1,6}(?:\.\d{1,9})?)(cm|mm|in|pt)")
POINTS = {"cm": 72 / 2.54, "mm": 7.2 / 2.54, "in": 72.0, "pt": 1.0}


def load_odp(source: SourceFile) -> Parsed:
    left_out: Counter[str] = Counter()
    slides = PagedText(source, "slide")
    with opened(source, ODP) as archive:
        refuse_encrypted(source, archive)
        content = _Slides(styles_of(source, archive), left_out)
        with archive.open(CONTENT) as part:
            for _ in read_part(source, part, content):
                for text in content.taken():
                    slides.add(len(slides) + 1, text)
        title = title_of(source, archive)
    tell_left_out(source, left_out)
    parsed = slides.parsed("markdown", "")
    return Parsed(parsed.text, parsed.kind, title or first_heading(parsed.text) or source.name, parsed.pages)


@dataclass
class _Shape:
    """`kind`: of a placeholder; that of the notes is NOTES."""

    text: OfficeText
    kind: str
    place: tuple[float, float] | None = None  # from the top, from the left

    def locate(self, attributes: Mapping[str, str]) -> None:
        """By the first of its elements that tells where it is."""
        if self.place is None and "svg:y" in attributes:
            self.place = _points(attributes["svg:y"]), _points(attributes.get("svg:x", ""))


class _Slides:
    """Styles, and behind them the slides. A shape of one is what stands right below it."""

    def __init__(self, styles: OfficeStyles, left_out: Counter[str]):
        self._styles, self._left_out = styles, left_out
        self._depth = 0  # within a slide, which is 1
        self._shapes: list[_Shape] = []
        self._done: list[str] = []

    def taken(self) -> Iterator[str]:
        """The texts of the slides that have ended since."""
        done, self._done = self._done, []
        yield from done

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if not self._depth and name != SLIDE:
            self._styles.start(name, attributes)
            return
        self._depth += 1
        if self._depth == 2:
            kind = NOTES if name == NOTES else attributes.get(CLASS, "")
            self._shapes.append(_Shape(OfficeText(self._styles, self._left_out), kind))
        if self._depth > 1:
            self._shapes[-1].locate(attributes)
            is_number = attributes.get(CLASS) in NUMBERS
            self._shapes[-1].text.start("office:forms" if is_number else name, attributes)

    def end(self, name: str) -> None:
        if self._depth > 1:
            self._shapes[-1].text.end(name)
        elif self._depth:
            self._done.append("\n\n".join(_blocks(self._shapes)))
            self._shapes = []
        self._depth = max(0, self._depth - 1)

    def data(self, text: str) -> None:
        if self._depth > 1:
            self._shapes[-1].text.data(text)


def _blocks(shapes: list[_Shape]) -> Iterator[str]:
    """The title first, notes last. A shape without a place stands where its layout puts it: first."""
    told = [(shape, text) for shape in shapes if (text := shape.text.close())]
    title = next((shape for shape, _ in told if shape.kind == "title"), None)
    for shape, text in sorted(
        told, key=lambda one: (one[0] is not title, one[0].kind == NOTES, one[0].place or (0, 0))
    ):
        if shape is title:
            yield f"# {' '.join(unescaped(text).split())}"
        else:
            yield behind("Notes: ", text) if shape.kind == NOTES else text


def _points(length: str) -> float:
    found = LENGTH.fullmatch(length)
    return float(found[1]) * POINTS[found[2]] if found else 0.0
