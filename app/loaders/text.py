"""Plain text, Markdown and source code: the text is the file's own, character by character."""

from __future__ import annotations

import re

from app.loaders.base import Parsed, SourceFile
from app.loaders.chat import is_chat
from app.loaders.encodings import decode
from splitter.lines import lines_as_lf

HEADING = re.compile(r"^#{1,6}+[ \t]++(\S.*+)$", re.MULTILINE)
CLOSING = re.compile(r"\s#++\s*+$")
TITLE_WITHIN = 5_000  # characters; a heading that comes later is not the title


def load_text(source: SourceFile) -> Parsed:
    text = decode(source)
    return Parsed(text, "chat" if is_chat(text) else "prose", source.name)


def load_markdown(source: SourceFile) -> Parsed:
    text = decode(source)
    return Parsed(text, "markdown", first_heading(text) or source.name)


def load_code(source: SourceFile) -> Parsed:
    return Parsed(decode(source), "code", source.name + source.path.suffix)


def first_heading(markdown: str) -> str:
    found = HEADING.search(lines_as_lf(markdown[:TITLE_WITHIN]))
    return CLOSING.sub("", found[1]).strip() if found else ""
