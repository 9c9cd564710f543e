"""What is common to OpenDocument files: their parts as events with short names, their styles, and text as Markdown.

The elements of a text become those of a page, for the writer that pages have: it knows headings, lists and tables.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Protocol
from xml.parsers import expat
from zipfile import ZipFile

from app.errors import printable
from app.loaders.base import SourceFile
from app.loaders.markup import MarkdownWriter
from app.loaders.soundness import AT_ONCE

CONTENT, STYLES, META, MANIFEST = "content.xml", "styles.xml", "meta.xml", "META-INF/manifest.xml"
OASIS, OF_OASIS = "urn:oasis:names:tc:opendocument:xmlns:", ":1.0"
DUBLIN = "http://purl.org/dc/elements/1.1/"
# What is no text of the document: deleted text, contents of its own, readings of characters, forms and their code.
LEFT_OUT = """
    text:tracked-changes table:tracked-changes text:table-of-content text:ruby-text text:note-citation office:forms
    office:scripts office:event-listeners office:binary-data table:covered-table-cell table:dde-links svg:title
    svg:desc dc:date meta:date-string meta:creator-initials table:content-validations presentation:footer-decl
    presentation:header-decl presentation:date-time-decl draw:glue-point
"""
SKIPPED = frozenset(LEFT_OUT.split())
OBJECTS = frozenset({"draw:object", "draw:object-ole", "draw:plugin"})
NOTE, AUTHOR = "text:note-body", "dc:creator"
ASIDES = frozenset({NOTE, "office:annotation"})
TAGS = {"table:table": "table", "table:table-row": "tr", "text:line-break": "br"}
BLANKS = {"text:s": " ", "text:tab": "\t"}
HEADINGS = {"Title": "h1", "Subtitle": "h2"}  # styles of paragraphs
LEVELS = tuple("123456")
MOST_PARENTS = 10  # of a style
logger = logging.getLogger(__name__)


class PartTarget(Protocol):
    """Of the events of a part, by names such as `text:p`; those of other namespaces are ""."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def data(self, text: str) -> None: ...


def read_part(source: SourceFile, part: IO[bytes], target: PartTarget) -> Iterator[None]:
    """Tells the target of its events, a piece after the other; whoever iterates may look at it between them."""
    names, parser = _Names(), expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        target.start(names[name], {names[key]: value for key, value in attributes.items()})

    def refuse(*_: object) -> None:
        raise source.error("declares a type and may declare entities, as no office program does: save it anew in one")

    parser.StartElementHandler, parser.EndElementHandler = start, lambda name: target.end(names[name])
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = target.data, refuse
    while piece := part.read(AT_ONCE):
        parser.Parse(piece, False)
        yield
    parser.Parse(b"", True)
    yield


class _Names(dict[str, str]):
    def __missing__(self, name: str) -> str:
        namespace, _, tag = name.rpartition(" ")
        if namespace.startswith(OASIS) and namespace.endswith(OF_OASIS):
            prefix = namespace[len(OASIS) : -len(OF_OASIS)].removesuffix("-compatible")
            self[name] = f"{prefix}:{tag}"
        else:
            self[name] = f"dc:{tag}" if namespace == DUBLIN else ""
        return self[name]


@dataclass
class OfficeStyles:
    """What the names of styles come to. A target of the parts that hold them."""

    parents: dict[str, str] = field(default_factory=dict)
    numbered: set[tuple[str, str]] = field(default_factory=set)  # lists and their levels
    _list: str = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "style:style":
            self.parents[attributes.get("style:name", "")] = attributes.get("style:parent-style-name", "")
        elif name == "text:list-style":
            self._list = attributes.get("style:name", "")
        elif name == "text:list-level-style-number" and attributes.get("style:num-format"):
            self.numbered.add((self._list, attributes.get("text:level", "")))

    def end(self, name: str) -> None:
        """Nothing is collected."""

    def data(self, text: str) -> None:
        """Styles have no text."""

    def heading(self, style: str) -> str:
        """The tag of a paragraph in that style, or in one that is made from it."""
        for _ in range(MOST_PARENTS):
            if style in HEADINGS:
                return HEADINGS[style]
            style = self.parents.get(style, "")
        return "p"


class _Title:
    def __init__(self) -> None:
        self.text, self._within = "", False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._within = name == "dc:title"

    def end(self, name: str) -> None:
        self._within = False

    def data(self, text: str) -> None:
        self.text += text if self._within else ""


def refuse_encrypted(source: SourceFile, archive: ZipFile) -> None:
    names = archive.namelist()
    if "encrypted-package" in names or (MANIFEST in names and b"encryption-data" in archive.read(MANIFEST)):
        raise source.error("is encrypted: open it in its program and save it without a password")


def styles_of(source: SourceFile, archive: ZipFile) -> OfficeStyles:
    """Those that stand beside the content, which holds more of them."""
    styles = OfficeStyles()
    _read_beside(source, archive, STYLES, styles)
    return styles


def title_of(source: SourceFile, archive: ZipFile) -> str:
    title = _Title()
    _read_beside(source, archive, META, title)
    return " ".join(title.text.split())


def _read_beside(source: SourceFile, archive: ZipFile, name: str, target: PartTarget) -> None:
    """A part that the text can do without."""
    with suppress(KeyError, expat.ExpatError), archive.open(name) as part:
        for _ in read_part(source, part, target):
            pass


def tell_left_out(source: SourceFile, left_out: Counter[str]) -> None:
    if left_out:
        told = ", ".join(f"{number:,} {what}" for what, number in left_out.items())
        logger.warning("%s: left out are %s", printable(source.path), told)


class OfficeText:
    """A target whose text `close` gives as Markdown: notes at its end, comments behind their paragraphs."""

    def __init__(self, styles: OfficeStyles, left_out: Counter[str], is_aside: bool = False):
        self._styles, self._left_out, self._is_aside = styles, left_out, is_aside
        self._writer = MarkdownWriter()
        self._tags: list[str] = []  # of the open elements; "" of those that a page has none for
        self._skipped = 0  # how deep in something that is
        self._lists: list[str] = []  # styles of those that are open
        self._numbers: dict[int, int] = {}  # of the last item, by the depth of its list
        self._aside: OfficeText | None = None  # the note or comment that is open
        self._depth = 0  # how deep in it
        self._author, self._is_author = "", False  # of a comment, where this is one
        self._notes: list[str] = []
        self._comments: list[str] = []

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
                self._writer.data(f"[{len(self._notes) + 1}]")
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
            self._author += text
        elif not self._skipped:
            self._writer.data(text)

    def close(self) -> str:
        self._tell_comments()
        for number, text in enumerate(self._notes, start=1):
            self._block("p", f"[{number}] {text}")
        return self._writer.close()

    def _open(self, name: str, attributes: Mapping[str, str]) -> str:
        """What is opened for it -> its tag."""
        given: dict[str, str] = {}
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
            self._writer.start(tag, given)
        elif name in BLANKS:
            self._writer.data(BLANKS[name])
        return tag

    def _close(self, name: str) -> None:
        if name == "text:list":
            self._lists.pop()
        if tag := self._tags.pop():
            self._writer.end(tag)
        if name in ("text:p", "text:h"):
            self._tell_comments()

    def _open_list(self, attributes: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        style = attributes.get("text:style-name") or (self._lists[-1] if self._lists else "")
        self._lists.append(style)
        depth = len(self._lists)
        goes_on = attributes.get("text:continue-numbering") == "true" or "text:continue-list" in attributes
        self._numbers[depth] = self._numbers.get(depth, 0) if goes_on else 0
        is_numbered = (style, str(depth)) in self._styles.numbered
        return ("ol", {"start": str(self._numbers[depth] + 1)}) if is_numbered else ("ul", {})

    def _numbered(self, value: str) -> dict[str, str]:
        """Of the next item."""
        depth, is_told = len(self._lists), value.isdecimal() and len(value) < 9
        self._numbers[depth] = int(value) if is_told else self._numbers.get(depth, 0) + 1
        return {"value": value} if is_told else {}

    def _keep(self, name: str, aside: OfficeText) -> None:
        text = " ".join(aside.close().split())
        if name == NOTE:
            self._notes.append(text)
        elif text:
            author = " ".join(aside._author.split())
            self._comments.append(f"Comment by {author}: {text}" if author else f"Comment: {text}")

    def _tell_comments(self) -> None:
        comments, self._comments = self._comments, []
        for comment in comments:
            self._block("p", comment)

    def _block(self, tag: str, text: str) -> None:
        self._writer.start(tag, {})
        self._writer.data(text)
        self._writer.end(tag)
