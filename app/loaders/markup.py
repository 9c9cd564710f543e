"""From HTML to Markdown, in one pass without a tree: any depth, linear time, no scripts.

Marks of emphasis and addresses of links are left out: they are in the way of search, and of whoever reads a citation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from app.loaders.grid import Table

SCRIPTED = "script style template noscript svg math iframe object canvas audio video select"
SKIPPED = frozenset(SCRIPTED.split())
DRAWINGS = frozenset({"svg", "math"})
HTML_WITHIN = (SKIPPED - DRAWINGS) | {"foreignobject", "desc", "title", "annotation-xml"}
BLOCK = """
    address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer form
    h1 h2 h3 h4 h5 h6 header hr html legend li main nav ol p pre section summary table tbody td tfoot th thead tr ul
"""
BLOCKS = frozenset(BLOCK.split())
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
# What HTML calls white space; a no-break space is a character.
SPACES = re.compile(r"[ \t\n\r\f]+")
BREAK = "\0"  # a <br>: HTML cannot hold this character
AROUND_BREAK = re.compile(rf" ?{BREAK} ?")
DEEPEST = 10  # levels that are shown; a page may nest 100,000, and each line would be marked as often
Role = Literal["block", "line", "title", "skipped", ""]  # what the end of a tag closes, since its start has opened it
LANGUAGE = re.compile(r"(?:language|lang)-([\w+#.-]{1,20})")


@dataclass
class _Flow:
    """A column of blocks: the page, or a cell of a table."""

    blocks: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)  # of the block that grows
    mark: str = ""  # what the next block starts with: of a heading or list item
    indent: str = ""  # of what follows in the same list item
    lists: list[int | None] = field(default_factory=list)  # numbers of the items so far; None where they have none
    quotes: int = 0
    heading: bool = False
    title: int = 0  # where in `inline` the page's title starts, while it grows
    structured: bool = False  # holds more than paragraphs

    def close(self) -> None:
        text = AROUND_BREAK.sub("\n", SPACES.sub(" ", "".join(self.inline))).strip(" \n")
        self.inline.clear()
        self.title = 0
        if text:
            self.add(SPACES.sub(" ", text) if self.heading else text)

    def add(self, text: str) -> None:
        first, self.mark = self.mark or self.indent, ""
        text = first + text.replace("\n", "\n" + self.indent)
        if self.quotes:
            text = "\n".join("> " * min(self.quotes, DEEPEST) + line for line in text.split("\n"))
        # Items of one list follow each other without blank lines.
        tight = bool(self.lists) and first != self.indent and bool(self.blocks) and _is_item(self.blocks[-1])
        self.blocks.append(("\n" if tight else "\n\n") + text)

    def text(self) -> str:
        return "".join(self.blocks).strip("\n")


class MarkdownWriter:
    """The target of a parser's events. `close` gives the Markdown; `title` is the page's, "" if it has none."""

    def __init__(self) -> None:
        self.title = ""
        self._opened: list[tuple[str, Role]] = []
        self._skipping = 0
        self._drawing = False  # what is skipped is a drawing or formula
        self._within = 0  # how deep in it that started which may hold HTML; 0 where nothing has
        self._flows = [_Flow()]
        self._tables: list[Table] = []
        self._deeper = 0  # tables below DEEPEST, whose cells are plain blocks: each level passes on all below it
        self._raw: list[str] | None = None  # of a <pre>
        self._language = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._opened.append((tag, self._begin(tag, attributes)))

    def end(self, tag: str) -> None:
        if not self._opened or self._opened[-1][0] != tag:
            return  # closes nothing
        _, role = self._opened.pop()
        if role == "skipped":
            self._skipping -= 1
            self._drawing = self._drawing and self._skipping > 0
            self._within = self._within if self._within <= self._skipping else 0
        elif role == "line":
            self._break_line()
        elif role == "title" and not self.title:
            start = self._flow.title
            self.title = SPACES.sub(" ", "".join(self._flow.inline[start:])).strip()
            del self._flow.inline[start:]
        elif role == "block":
            self._flow.close()
            self._close_block(tag)

    def data(self, text: str) -> None:
        if self._skipping:
            return
        (self._flow.inline if self._raw is None else self._raw).append(text)

    def comment(self, text: str) -> None:
        """Nothing for the reader."""

    def pi(self, target: str, data: str | None = None) -> None:
        """Nothing for the reader."""

    def close(self) -> str:
        while self._opened:
            self.end(self._opened[-1][0])
        self._flow.close()
        return self._flow.text()

    @property
    def _flow(self) -> _Flow:
        return self._flows[-1]

    def _begin(self, tag: str, attributes: Mapping[str, str]) -> Role:
        if self._drawing and not self._within and tag in BLOCKS:
            self._leave_drawing()
        if self._skipping or tag in SKIPPED:
            self._skip(tag)
            return "skipped"
        if self._raw is not None:
            return self._within_pre(tag, attributes)
        if tag == "br":
            self._flow.inline.append(BREAK)
        elif tag == "img" and attributes.get("alt"):
            self._flow.inline.append(f" {attributes['alt']} ")
        elif tag == "head":
            self._flow.close()
        elif tag == "title":
            self._flow.title = len(self._flow.inline)
            return "title"
        elif tag in BLOCKS:
            self._flow.close()
            self._open_block(tag, attributes)
            return "block"
        return ""

    def _skip(self, tag: str) -> None:
        if not self._skipping:
            self._drawing = tag in DRAWINGS
        self._skipping += 1
        if self._drawing and not self._within and self._skipping > 1 and tag in HTML_WITHIN:
            self._within = self._skipping

    def _leave_drawing(self) -> None:
        """Nobody has closed it: blocks end it in browsers too, or a page would be hidden from there on."""
        for index in range(len(self._opened) - self._skipping, len(self._opened)):
            self._opened[index] = (self._opened[index][0], "")
        self._skipping, self._drawing = 0, False

    def _open_block(self, tag: str, attributes: Mapping[str, str]) -> None:
        flow = self._flow
        if tag in HEADINGS:
            flow.mark, flow.heading, flow.structured = HEADINGS[tag], True, True
        elif tag in ("ul", "ol"):
            flow.lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            flow.mark = _item_mark(flow.lists)
            flow.indent = " " * len(flow.mark)
        elif tag == "blockquote":
            flow.quotes += 1
        elif tag == "pre":
            self._raw, flow.structured = [], True
            self._within_pre(tag, attributes)
        elif tag == "table":
            flow.structured = True
            self._open_table()
        elif tag == "tr" and self._in_table:
            self._tables[-1].add_row()
        elif tag in ("td", "th") and self._in_table:
            self._flows.append(_Flow())

    def _close_block(self, tag: str) -> None:
        flow = self._flow
        if tag in HEADINGS:
            flow.mark, flow.heading = "", False
        elif tag in ("ul", "ol") and flow.lists:
            flow.lists.pop()
            flow.indent = flow.indent if flow.lists else ""
        elif tag == "li":
            flow.mark, flow.indent = "", "  " * min(len(flow.lists) - 1, DEEPEST)
        elif tag == "blockquote":
            flow.quotes = max(0, flow.quotes - 1)
        elif tag == "pre":
            self._close_pre()
        elif tag in ("td", "th") and self._in_table:
            cell = self._flows.pop()
            self._tables[-1].add_cell([block.strip("\n") for block in cell.blocks], cell.structured)
        elif tag == "table":
            self._close_table()

    @property
    def _in_table(self) -> bool:
        return bool(self._tables) and not self._deeper

    def _open_table(self) -> None:
        if len(self._tables) < DEEPEST:
            self._tables.append(Table())
        else:
            self._deeper += 1

    def _close_table(self) -> None:
        if self._deeper:
            self._deeper -= 1
            return
        for block in self._tables.pop().blocks():
            self._flow.add(block)

    def _within_pre(self, tag: str, attributes: Mapping[str, str]) -> Role:
        """Blocks in it are lines: a page may have one for each line of a program."""
        assert self._raw is not None
        found = LANGUAGE.search(attributes.get("class") or "")
        if found and not self._language:
            self._language = found[1]
        if tag == "br":
            self._raw.append("\n")
        if tag not in BLOCKS:
            return ""
        self._break_line()
        return "line"

    def _break_line(self) -> None:
        assert self._raw is not None
        if self._raw and not self._raw[-1].endswith("\n"):
            self._raw.append("\n")

    def _close_pre(self) -> None:
        raw = "".join(self._raw or ()).strip("\r\n").rstrip()
        language, self._raw, self._language = self._language, None, ""
        if raw:
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", raw)), default=0))
            self._flow.add(f"{fence}{language}\n{raw}\n{fence}")


def _item_mark(lists: list[int | None]) -> str:
    """Counts the item. A list item outside of any list gets a mark all the same."""
    number = None
    if lists and lists[-1] is not None:
        number = lists[-1] = lists[-1] + 1
    return "  " * min(len(lists) - 1, DEEPEST) + ("- " if number is None else f"{number}. ")


def _is_item(block: str) -> bool:
    return re.match(r"\s*+(?:> )*+\s*+(?:- |\d++\. )", block) is not None
