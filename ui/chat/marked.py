"""Rendered Markdown with marks at spans of its source: behind sentences that a source supports, and under the others.

The text is read as Markdown first, and marks are set into what came of it. So none changes how the text is read,
wherever it stands: a mark that crosses emphasis, cells of a table or lines is set in each of its pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from ui.markup import markdown

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
LOOKED_AT = 4000  # characters behind the last piece that was found, for the next one
_SHOWN = ("text", "code_inline")


@dataclass(frozen=True)
class Mark:
    """`source[start:end]`, with HTML around each piece of it, and behind the last one."""

    start: int
    end: int
    before: str = ""
    after: str = ""
    behind: str = ""


def rendered_with(source: str, marks: Sequence[Mark]) -> str:
    """`marks` ascend, and share nothing. What cannot be found in the text has its HTML behind the block it is in."""
    parser = markdown()
    tokens = parser.parse(source)
    if marks:
        _Marking(source, marks).set_in(tokens)
    return str(parser.renderer.render(tokens, parser.options, {}))


class _Marking:
    def __init__(self, source: str, marks: Sequence[Mark]):
        self._source = source
        self._left = list(reversed(marks))
        self._at = 0  # in the source: what stands before is shown

    def set_in(self, tokens: Sequence[Token]) -> None:
        starts = [found.start() for found in _LINE.finditer(self._source)]
        block: Token | None = None
        for token in tokens:
            if token.type != "inline" or not token.map or token.children is None:
                continue
            begins = starts[token.map[0]] if token.map[0] < len(starts) else len(self._source)
            if block is not None:
                self._close(block, begins)
            self._at = max(self._at, begins)
            token.children = [piece for child in token.children for piece in self._pieces(child)]
            block = token
        if block is not None:
            self._close(block, len(self._source) + 1)

    def _close(self, block: Token, begins: int) -> None:
        """Marks that end before the next block."""
        while self._left and self._left[-1].end <= begins:
            assert block.children is not None
            block.children += _html(self._left.pop().behind)

    def _pieces(self, child: Token) -> Iterator[Token]:
        content = child.content
        found = self._found(content) if child.type in _SHOWN and content else -1
        if found < 0:
            yield child
            return
        at = found
        while self._left and self._left[-1].start < found + len(content):
            mark = self._left[-1]
            first, last = max(at, mark.start), min(found + len(content), mark.end)
            if first > at:
                yield _part(child, content[at - found : first - found])
            if last > first:
                yield from _html(mark.before)
                yield _part(child, content[first - found : last - found])
                yield from _html(mark.after)
            at = max(at, last)
            if mark.end > found + len(content):
                break
            yield from _html(self._left.pop().behind)
        if at < found + len(content):
            yield _part(child, content[at - found :])
        self._at = found + len(content)

    def _found(self, content: str) -> int:
        """-1 where it was written in another way, as with entities and escapes."""
        return self._source.find(content, self._at, self._at + LOOKED_AT + len(content))


def _part(child: Token, content: str) -> Token:
    return child.copy(content=content)


def _html(html: str) -> list[Token]:
    return [Token("html_inline", "", 0, content=html)] if html else []
