"""What is common to OpenDocument files: their parts as events with short names, their styles and their titles."""

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
from app.loaders.base import LONGEST_TITLE, SourceFile
from app.loaders.soundness import AT_ONCE

CONTENT, STYLES, META, MANIFEST = "content.xml", "styles.xml", "meta.xml", "META-INF/manifest.xml"
# Prefixes as the standard writes them, whatever a file calls them.
OASIS = {
    "office": "office", "text": "text", "table": "table", "draw": "drawing", "style": "style", "meta": "meta",
    "presentation": "presentation", "svg": "svg-compatible",
}  # fmt: skip
PREFIXES = {f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0": prefix for prefix, name in OASIS.items()}
PREFIXES["http://purl.org/dc/elements/1.1/"] = "dc"
# What is no text of the document: deleted text, contents of its own, readings of characters, forms, code, templates.
LEFT_OUT = """
    text:tracked-changes table:tracked-changes text:table-of-content text:ruby-text text:note-citation office:forms
    office:scripts office:event-listeners office:binary-data table:covered-table-cell table:dde-links svg:title
    svg:desc dc:date meta:date-string meta:creator-initials table:content-validations presentation:footer-decl
    presentation:header-decl presentation:date-time-decl draw:glue-point text:script text:illustration-index-source
    text:table-index-source text:object-index-source text:user-index-source text:alphabetical-index-source
    text:bibliography-source
"""
SKIPPED = frozenset(LEFT_OUT.split())
OBJECTS = frozenset({"draw:object", "draw:object-ole", "draw:plugin"})
BLANKS = {"text:s": " ", "text:tab": "\t"}
HEADINGS = {"Title": "h1", "Subtitle": "h2"}  # styles of paragraphs
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
        self[name] = f"{PREFIXES[namespace]}:{tag}" if namespace in PREFIXES else ""
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


class BoundedText:
    """Pieces of a text, whose end is left out beyond a length."""

    def __init__(self, most: int) -> None:
        self._parts: list[str] = []
        self._room = most

    def add(self, text: str) -> None:
        if self._room > 0:
            self._parts.append(text[: self._room])
            self._room -= len(text)

    def line(self) -> str:
        return " ".join("".join(self._parts).split())


class _Title:
    def __init__(self) -> None:
        self.text, self._within = BoundedText(LONGEST_TITLE), False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._within = name == "dc:title"

    def end(self, name: str) -> None:
        self._within = False

    def data(self, text: str) -> None:
        if self._within:
            self.text.add(text)


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
    return title.text.line()


def _read_beside(source: SourceFile, archive: ZipFile, name: str, target: PartTarget) -> None:
    """A part that the text can do without."""
    with suppress(KeyError, expat.ExpatError), archive.open(name) as part:
        for _ in read_part(source, part, target):
            pass


def tell_left_out(source: SourceFile, left_out: Counter[str]) -> None:
    if left_out:
        told = ", ".join(f"{number:,} {what}" for what, number in left_out.items())
        logger.warning("%s: left out are %s", printable(source.path), told)
