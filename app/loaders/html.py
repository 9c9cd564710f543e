"""HTML pages as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from html import escape

from lxml import etree

from app.loaders.base import Parsed, SourceFile
from app.loaders.encodings import decode
from app.loaders.markup import MarkdownWriter
from app.loaders.text import first_heading

DECLARED = re.compile(
    rb"""(?:<meta[^>]{0,200}charset|<\?xml[^>]{0,100}encoding)\s*+=\s*+["']?+\s*+([\w.:-]{1,40}+)""", re.I
)
# XHTML may close these at once; a parser of HTML would take all that follows for their content.
CLOSED_AT_ONCE = re.compile(r"<(script|style|title|textarea|iframe|noscript|template)(\s[^<>]*)?/>", re.I)
XHTML = re.compile(r"\A\s*+<\?xml\b|<html\b[^>]{0,500}\bxmlns\s*+=", re.I)
HIDDEN = re.compile(r"<!--|<!\[CDATA\[")
HEAD = 4096
PIECE = 4096
DEEPEST = 512  # elements within each other, as in Chrome: libxml2 looks through all for each end that has no start


def load_html(source: SourceFile) -> Parsed:
    text, title = page_of(source)
    return Parsed(text, "markdown", title or first_heading(text) or source.name)


def page_of(source: SourceFile, declared: str = "") -> tuple[str, str]:
    """Markdown and title of the bytes of a page, in the encoding that is declared for it, or that it declares."""
    found = None if declared else DECLARED.search(source.data, 0, HEAD)
    text = decode(source, found[1].decode("ascii") if found else declared)
    return markdown_of(_escaped(text) if XHTML.search(text, 0, HEAD) else text)


def _escaped(xhtml: str) -> str:
    """With its CDATA as text: for a parser of HTML it is a comment up to the first `>`."""
    parts, at = [], 0
    while found := HIDDEN.search(xhtml, at):
        comment = found[0] == "<!--"
        end = xhtml.find("-->" if comment else "]]>", found.end())
        if end < 0:
            break
        inner = xhtml[found.start() : end + 3] if comment else escape(xhtml[found.end() : end])
        parts += [xhtml[at : found.start()], inner]
        at = end + 3
    return "".join([*parts, xhtml[at:]])


def markdown_of(html: str, escapes: bool = True) -> tuple[str, str]:
    """Markdown and title of a page, whatever it holds: a browser shows any text, and so does this."""
    writer = MarkdownWriter(escapes)
    parser = etree.HTMLParser(target=writer, encoding="utf-8", huge_tree=True)
    data = CLOSED_AT_ONCE.sub(r"<\1\2></\1>", html).encode("utf-8", "replace")
    for piece in _pieces(data):
        parser.feed(piece)
        if ends := "".join(f"</{tag}>" for tag in writer.deeper_than(DEEPEST)):
            parser.feed(ends.encode("utf-8", "replace"))
    with suppress(etree.XMLSyntaxError):  # there was no element at all
        parser.close()
    return writer.close(), writer.title


def _pieces(page: bytes) -> Iterator[bytes]:
    """Which end with a tag, so that another can follow."""
    start = 0
    while start < len(page):
        end = page.find(b">", start + PIECE) + 1 or len(page)
        yield page[start:end]
        start = end
