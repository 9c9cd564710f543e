"""The text of an OpenDocument file as Markdown.

Its elements become those of a page, for the writer that pages have: it knows headings, lists and tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.loaders.base import LONGEST_AUTHOR
from app.loaders.marks import unescaped
from app.loaders.markup import MarkdownWriter
from app.loaders.odml import BLANKS, OBJECTS, SKIPPED, BoundedText, OfficeStyles

NOTE, AUTHOR = "text:note-body", "dc:creator"
ASIDES = frozenset({NOTE, "office:annotation"})
PARAGRAPHS = frozenset({"text:p", "text:h"})
SHAPES = """
    text-box custom-shape rect circle ellipse line polyline polygon regular-polygon path connector caption measure
"""
BOXES = frozenset(f"draw:{name}" for name in SHAPES.split())  # may have paragraphs, and stand in one
BOX, MOST_BOXES = "box", 10  # within each other, that are texts of their own
TAGS = {"table:table": "table", "table:table-row": "tr", "text:line-break": "br"}
LEVELS = tuple("123456")


@dataclass
class _Body:
    """What grows: the document, or a box in one of its paragraphs."""

    writer: MarkdownWriter = field(default_factory=MarkdownWriter)
    lists: list[str] = field(default_factory=list)  # styles of those that are open
    numbers: dict[int, int] = field(default_factory=dict)  # of the last item, by the depth of its list
    paragraphs: int = 0  # that are open
    behind: list[MarkdownWriter] = field(default_factory=list)  # of what comes behind the paragraph


class OfficeText:
    """A target whose text `close` gives as Markdown: notes at its end, comments and boxes behind their paragraphs."""

    def __init__(self, styles: OfficeStyles, left_out: Counter[str], is_aside: bool = False):
        self._styles, self._left_out, self._is_aside = styles, left_out, is_aside
        self._body = _Body()
        self._around: list[_Body] = []  # which hold the box that is open
        self._tags: list[str] = []  # of the open elements; "" of those that a page has none for
        self._skipped = 0  # how deep in something that is
        self._aside: OfficeText | None = None  # the note or comment that is open
        self._depth = 0  # how deep in it
        self._author, self._is_author = BoundedText(LONGEST_AUTHOR), False  # of a comment, where this is one
        self._notes: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._aside is not None:
            self._depth += 1
            self._aside.start(name, attributes)
        elif self._skipped or name in SKIPPED or name in OBJECTS or (self._is_aside and name in ASIDES):
            if name in OBJECTS and not self._skipped:
                self._left_out["embedded objects"] += 1
            self._skipped += 1
        elif name in ASIDES:
            self._aside, self._depth = OfficeText(self._styles, self._left_out, is_aside=True), 0
            if name == NOTE:
                self._body.writer.data(f"[{len(self._notes) + 1}]")
        else:
            self._is_author = name == AUTHOR
            self._tags.append(self._open(name, attributes))

    def end(self, name: str) -> None:
        if self._aside is not None and self._depth:
            self._depth -= 1
            self._aside.end(name)
        elif self._aside is not None:
            self._keep(name, self._aside)
            self._aside = None
        elif self._skipped:
            self._skipped -= 1
        else:
            self._is_author = False
            self._close(name)

    def data(self, text: str) -> None:
        if self._aside is not None:
            self._aside.data(text)
        elif self._is_author and self._is_aside:
            self._author.add(text)
        elif not self._skipped:
            self._body.writer.data(text)

    def close(self) -> str:
        self._tell_behind()
        for number, text in enumerate(self._notes, start=1):
            self._body.writer.add(_paragraph(f"[{number}] {text}"))
        return self._body.writer.close()

    def _open(self, name: str, attributes: Mapping[str, str]) -> str:
        """What is opened for it -> its tag."""
        given: dict[str, str] = {}
        if name in BOXES and self._body.paragraphs and len(self._around) < MOST_BOXES:
            self._around.append(self._body)
            self._body = _Body()
            return BOX
        self._body.paragraphs += name in PARAGRAPHS
        if name == "text:p":
            tag = self._styles.heading(attributes.get("text:style-name", ""))
        elif name == "text:h":
            level = attributes.get("text:outline-level", "1")
            tag = f"h{level if level in LEVELS else 6}"
        elif name == "text:list":
            tag, given = self._open_list(attributes)
        elif name == "text:list-item":
            tag, given = "li", self._numbered(attributes.get("text:start-value", ""))
        elif name == "table:table-cell":
            spans = {"rowspan": "table:number-rows-spanned", "colspan": "table:number-columns-spanned"}
            tag, given = "td", {key: attributes[span] for key, span in spans.items() if span in attributes}
        else:
            tag = TAGS.get(name, "")
        if tag:
            self._body.writer.start(tag, given)
        elif name in BLANKS:
            self._body.writer.data(BLANKS[name])
        return tag

    def _close(self, name: str) -> None:
        tag = self._tags.pop()
        if tag == BOX:
            self._tell_behind()
            box, self._body = self._body.writer, self._around.pop()
            self._body.behind.append(box)
            return
        if name == "text:list":
            self._body.lists.pop()
        if tag:
            self._body.writer.end(tag)
        if name in PARAGRAPHS:
            self._body.paragraphs -= 1
            self._tell_behind()

    def _open_list(self, attributes: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        lists, numbers = self._body.lists, self._body.numbers
        style = attributes.get("text:style-name") or (lists[-1] if lists else "")
        lists.append(style)
        depth = len(lists)
        goes_on = attributes.get("text:continue-numbering") == "true" or "text:continue-list" in attributes
        numbers[depth] = numbers.get(depth, 0) if goes_on else 0
        is_numbered = (style, str(depth)) in self._styles.numbered
        return ("ol", {"start": str(numbers[depth] + 1)}) if is_numbered else ("ul", {})

    def _numbered(self, value: str) -> dict[str, str]:
        """Of the next item."""
        numbers, depth, is_told = self._body.numbers, len(self._body.lists), value.isdecimal() and len(value) < 9
        numbers[depth] = int(value) if is_told else numbers.get(depth, 0) + 1
        return {"value": value} if is_told else {}

    def _keep(self, name: str, aside: OfficeText) -> None:
        text = " ".join(unescaped(aside.close()).split())
        if name == NOTE:
            self._notes.append(text)
        elif text:
            author = aside._author.line()
            self._body.behind.append(_paragraph(f"Comment by {author}: {text}" if author else f"Comment: {text}"))

    def _tell_behind(self) -> None:
        behind, self._body.behind = self._body.behind, []
        for writer in behind:
            self._body.writer.add(writer)


def _paragraph(text: str) -> MarkdownWriter:
    writer = MarkdownWriter()
    writer.data(text)
    return writer
