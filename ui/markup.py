"""Texts as HTML that does nothing but show them.

Documents, names, questions and answers are anybody's. Nothing of them becomes a tag, a link or an image, so a browser
that shows them asks nobody for anything. Streamlit reads the labels of its own elements as Markdown: for them there is
`label`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape as _escape

from markdown_it import MarkdownIt

# Everything that Streamlit's Markdown takes for a sign, with what it reads as its own: `:icon:`, `$formula$`.
_SIGNS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~:$^=&@/])")
_LINES = re.compile(r"\s+")
LONGEST_LABEL = 120


def escape(text: str) -> str:
    return _escape(text, quote=True)


def label(text: str) -> str:
    """In one line, for an element that reads Markdown."""
    line = _LINES.sub(" ", text).strip()
    shown = line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"
    return _SIGNS.sub(r"\\\1", shown)


def refusal(text: str) -> str:
    """What went wrong, for a person."""
    return f'<div class="rc-refusal" role="alert" dir="auto">{escape(text)}</div>'


def rendered(text: str) -> str:
    """Markdown without links, images and HTML, which stay as they were written."""
    return str(markdown().render(text))


@lru_cache(maxsize=1)
def markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(_FETCHING)


_FETCHING = ["image", "link", "autolink", "reference", "html_block", "html_inline"]
