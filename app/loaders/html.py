"""HTML pages as Markdown."""

from __future__ import annotations

import re
from contextlib import suppress

from app.loaders.base import Parsed, Source
from app.loaders.encodings import decode
from app.loaders.markup import MarkdownWriter
from app.loaders.text import first_heading

DECLARED = re.compile(
    rb"""(?:<meta[^>]{0,200}charset|<\?xml[^>]{0,100}encoding)\s*+=\s*+["']?+\s*+([\w.:-]{1,40}+)""", re.I
)
# XHTML may close these at once; a parser of HTML would take all that follows for their content.
CLOSED_AT_ONCE = re.compile(r"<(script|style|title|textarea|iframe|noscript|template)(\s[^<>]*)?/>", re.I)
HEAD = 4096
PIECE = 1 << 20


def load_html(source: Source) -> Parsed:
    text, title = page_of(source)
    return Parsed(text, "markdown", title or first_heading(text) or source.name)


def page_of(source: Source) -> tuple[str, str]:
    """Markdown and title of the bytes of a page, in the encoding that it declares."""
    found = DECLARED.search(source.data, 0, HEAD)
    return markdown_of(decode(source, found[1].decode("ascii") if found else ""))


def markdown_of(html: str) -> tuple[str, str]:
    """Markdown and title of a page, whatever it holds: a browser shows any text, and so does this."""
    from lxml import etree

    writer = MarkdownWriter()
    parser = etree.HTMLParser(target=writer, encoding="utf-8", huge_tree=True)
    data = CLOSED_AT_ONCE.sub(r"<\1\2></\1>", html).encode("utf-8", "replace")
    for start in range(0, len(data), PIECE):
        parser.feed(data[start : start + PIECE])
    with suppress(etree.XMLSyntaxError):  # there was no element at all
        parser.close()
    return writer.close(), writer.title
