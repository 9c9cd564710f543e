"""The sentences of an answer that claim something, as spans of its Markdown.

Headings, code, questions, and what only leads over or is polite claim nothing. A row of a table is one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from markdown_it import MarkdownIt

from splitter.base import Offsets

JUDGED = 20_000  # characters of an answer; what stands behind them is not looked at
MOST = 400  # sentences
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_MARKS = re.compile(r"[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]+|>)*")  # of quotes and items, before what they hold
_TELLING = re.compile(r"[^\W_]")
_QUOTED = "*_~\"'”»)"
_LEADS = ("?", "？", "؟", "፧", ":", "：")
_EDGES = " \t\r\n|*_~"
# What begins so is about the answer, and not from the documents.
_POLITE = re.compile(
    r"(?i)\W*(?:sure|certainly|of course|thank(?:s| you)|you(?:'|’)re welcome|i hope|i(?:'|’)?m sorry|i am sorry|sorry|"
    r"please (?:let|feel)|let me know|if you have|feel free|here (?:is|are|you go)|hello|hi|as an ai|"
    r"i do(?: no|n['’])t know|gern|gerne|natürlich|danke|ich hoffe|es tut mir leid|leider|bitte|hallo|"
    r"hier (?:ist|sind)|ich weiß (?:es )?nicht)\b"
)
_POLITE_WORDS = 12  # a longer sentence says something beside


def claims(text: str) -> list[Offsets]:
    """Ascending. It takes time in proportion to the text, whatever is in it."""
    judged = text[:JUDGED]
    found: list[Offsets] = []
    for start, end, whole in _blocks(judged):
        spans = [(start, end)] if whole else _sentences(judged, start, end)
        bare = (_bare(judged, *span) for span in spans)
        found += [span for span in bare if claims_something(judged[slice(*span)])]
        if len(found) >= MOST:
            break
    return found[:MOST]


def claims_something(sentence: str) -> bool:
    if not _TELLING.search(sentence) or sentence.rstrip(_QUOTED).endswith(_LEADS):
        return False
    return not (_POLITE.match(sentence) and len(sentence.split()) <= _POLITE_WORDS)


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """Paragraphs and the rows of tables; whether one is a claim as a whole, as rows are."""
    starts = [found.start() for found in _LINE.finditer(text)]
    parents: list[str] = []
    for token in _markdown().parse(text):
        if token.nesting > 0:
            parents.append(token.type)
            if token.type == "tr_open" and "thead_open" not in parents and token.map:
                yield starts[token.map[0]], _at(starts, token.map[1], text), True
        elif token.nesting < 0:
            parents.pop()
        elif token.type == "inline" and token.map and parents[-1] == "paragraph_open":
            start = starts[token.map[0]]
            marks = _MARKS.match(text, start)
            yield marks.end() if marks else start, _at(starts, token.map[1], text), False


def _at(starts: list[int], line: int, text: str) -> int:
    return starts[line] if line < len(starts) else len(text)


def _sentences(text: str, start: int, end: int) -> Iterator[Offsets]:
    from splitter.units import sentence_spans  # it imports NLTK

    return sentence_spans(text, start, end)


def _bare(text: str, start: int, end: int) -> Offsets:
    """Without blanks, bars of a table and marks of emphasis at its edges."""
    sentence = text[start:end]
    kept = sentence.strip(_EDGES)
    start += len(sentence) - len(sentence.lstrip(_EDGES))
    return start, start + len(kept)


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    """Blocks alone, as the page shows them."""
    markdown = MarkdownIt("commonmark").enable("table")
    markdown.core.ruler.enableOnly(["normalize", "block"])
    return markdown
