"""From HTML to Markdown, in one pass without a tree: any depth, linear time, no scripts.

Marks of emphasis and addresses of links are left out: they are in the way of search, and of whoever reads a citation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from app.loaders.blocks import BREAK, DEEPEST, SPACES, Cell, Flow, Table, fenced

SCRIPTED = "script style template noscript svg math iframe object canvas audio video select"
SKIPPED = frozenset(SCRIPTED.split())
RAW = "iframe noembed noframes plaintext script style textarea title xmp"
RAW_TEXT = frozenset(RAW.split())  # nothing nests in it
DRAWINGS = frozenset({"svg", "math"})
HTML_WITHIN = (SKIPPED - DRAWINGS) | {"foreignobject", "desc", "title", "annotation-xml"}
RUBY_WITHIN = (SKIPPED - DRAWINGS) | {"ruby"}
READINGS = frozenset({"rt", "rp", "rtc"})  # of characters, amid which they stand
BLOCK = """
    address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer form
    h1 h2 h3 h4 h5 h6 header hr html legend li main nav ol p pre section summary table tbody td tfoot th thead tr ul
"""
BLOCKS = frozenset(BLOCK.split())
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
# What the end of a tag closes, since its start has opened it.
Role = Literal["block", "line", "title", "raised", "ruby", "formula", "skipped", ""]
NUMBER = re.compile(r"\d{1,9}")  # of an item, or of rows and columns
ALL_ROWS = 10**9
LANGUAGE = re.compile(r"(?:language|lang)-([\w+#.-]{1,20})")


class Formula(str):
    """Marks the place of a formula in a flow: what only shows it once more may follow."""


class MarkdownWriter:
    """The target of a parser's events. `close` gives the Markdown; `title` is the page's, "" if it has none."""

    def __init__(self, escapes: bool = True) -> None:
        self.title = ""
        self._opened: list[tuple[str, Role]] = []
        self._skipping = 0
        self._hidden = ""  # what is skipped, where that is a drawing, formula or reading
        self._within = 0  # how deep in it that started which it cannot end in; 0 where nothing has
        self._rubies = 0  # that are open
        self._formula: list[str] | None = None  # its TeX; None where no formula waits for it
        self._raised: tuple[int, bool] | None = None  # where superscript starts, and whether a link holds all of it
        self._link = -1  # where the last link starts
        self._flows = [Flow(escapes=escapes)]
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
        if role in ("skipped", "formula"):
            self._end_skipped(role)
        elif role == "line":
            self._break_line()
        elif role == "ruby":
            self._rubies -= 1
        elif role == "title" and not self.title:
            start = self._flow.title
            self.title = SPACES.sub(" ", "".join(self._flow.inline[start:])).strip()
            del self._flow.inline[start:]
        elif role == "raised" and self._raised:
            self._flow.raise_from(*self._raised)
            self._raised = None
        elif role == "block":
            self._flow.close()
            self._close_block(tag)

    def data(self, text: str) -> None:
        if not self._skipping:
            self._write(text)
        elif self._formula is not None and self._opened[-1][1] == "formula":
            self._formula.append(text)

    def comment(self, text: str) -> None:
        """Nothing for the reader."""

    def pi(self, target: str, data: str | None = None) -> None:
        """Nothing for the reader."""

    def deeper_than(self, most: int) -> list[str]:
        """Tags of the elements that are open below so many, the innermost first; none while raw text is read."""
        deeper = [tag for tag, _ in reversed(self._opened[most:])]
        return [] if deeper and deeper[0] in RAW_TEXT else deeper

    def add(self, other: MarkdownWriter) -> None:
        """What another one has written, as blocks."""
        self._flow.close()
        if text := other.close():
            self._flow.add(text)
            self._flow.structured = self._flow.structured or other._flow.structured

    def close(self) -> str:
        while self._opened:
            self.end(self._opened[-1][0])
        self._flow.close()
        return self._flow.text()

    def _write(self, text: str) -> None:
        (self._flow.inline if self._raw is None else self._raw).append(text)

    @property
    def _flow(self) -> Flow:
        return self._flows[-1]

    def _begin(self, tag: str, attributes: Mapping[str, str]) -> Role:
        if self._hidden and not self._within and self._is_ended_by(tag):
            self._leave_hidden()
        is_reading = tag in READINGS and self._rubies > 0
        if self._skipping or tag in SKIPPED or is_reading or self._repeats(attributes):
            return self._skip(tag, attributes)
        if tag == "ruby":
            self._rubies += 1
            return "ruby"
        if tag == "input" and _is_checkbox(attributes):
            self._write("[x] " if "checked" in attributes else "[ ] ")
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
        elif tag == "a":
            self._open_link(attributes)
        elif tag == "sup" and not self._raised:
            start = len(self._flow.inline)
            self._raised = start, self._opened[-1:] == [("a", "")] and self._link == start
            return "raised"
        elif tag in BLOCKS:
            self._raised = None
            self._flow.close()
            self._open_block(tag, attributes)
            return "block"
        return ""

    def _skip(self, tag: str, attributes: Mapping[str, str]) -> Role:
        if not self._skipping:
            self._hidden = tag if tag in DRAWINGS | READINGS else ""
            if tag == "math" and not self._tell_formula(attributes.get("alttext") or ""):
                self._formula = []
        self._skipping += 1
        inner = HTML_WITHIN if self._hidden in DRAWINGS else RUBY_WITHIN
        if self._hidden and not self._within and self._skipping > 1 and tag in inner:
            self._within = self._skipping
        is_tex = self._formula == [] and tag == "annotation" and "tex" in attributes.get("encoding", "")
        return "formula" if is_tex else "skipped"

    def _end_skipped(self, role: Role) -> None:
        if role == "formula" and self._tell_formula("".join(self._formula or ())):
            self._formula = None
        self._skipping -= 1
        if not self._skipping:
            self._hidden, self._formula = "", None
        self._within = self._within if self._within <= self._skipping else 0

    def _tell_formula(self, text: str) -> bool:
        """Whether there is any."""
        if not text.strip():
            return False
        self._write(Formula(text.strip()))
        return True

    def _repeats(self, attributes: Mapping[str, str]) -> bool:
        """Wikipedia and KaTeX show a formula behind its text once more, for the eye."""
        inline = self._flow.inline
        return attributes.get("aria-hidden") == "true" and bool(inline) and isinstance(inline[-1], Formula)

    def _open_link(self, attributes: Mapping[str, str]) -> None:
        self._link = len(self._flow.inline)
        if self._raised and self._raised[0] == self._link and attributes.get("href"):
            self._raised = self._link, True

    def _is_ended_by(self, tag: str) -> bool:
        """Of a reading, whose own end may be left out in HTML: those below a rtc are its parts."""
        if self._hidden in READINGS and (tag == "rb" or tag in READINGS):
            return self._hidden != "rtc" or tag in ("rb", "rtc")
        return tag in BLOCKS

    def _leave_hidden(self) -> None:
        """Nobody has closed it: blocks end it in browsers too, or a page would be hidden from there on."""
        for index in range(len(self._opened) - self._skipping, len(self._opened)):
            self._opened[index] = (self._opened[index][0], "")
        self._skipping, self._hidden, self._formula = 0, "", None

    def _open_block(self, tag: str, attributes: Mapping[str, str]) -> None:
        flow = self._flow
        if tag in HEADINGS:
            flow.mark, flow.heading, flow.structured = HEADINGS[tag], True, True
        elif tag in ("ul", "ol"):
            first = _number(attributes.get("start"))
            flow.lists.append((1 if first is None else first) - 1 if tag == "ol" else None)
        elif tag == "li":
            flow.begin_item(_number(attributes.get("value")))
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
            rows, columns = _number(attributes.get("rowspan")), _number(attributes.get("colspan"))
            # No rows mean all to the end of the group.
            height = ALL_ROWS if rows == 0 else rows or 1
            self._flows.append(Flow(rows=height, columns=columns or 1, escapes=flow.escapes))
        elif tag in ("thead", "tbody", "tfoot") and self._in_table:
            self._tables[-1].add_group()

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
            blocks = [block.strip("\n") for block in cell.blocks]
            self._tables[-1].add_cell(Cell(blocks, cell.rows, cell.columns, cell.escapes), cell.structured)
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
        block = fenced("".join(self._raw or ()), self._language)
        self._raw, self._language = None, ""
        if block:
            self._flow.add(block)


def _is_checkbox(attributes: Mapping[str, str]) -> bool:
    """One that is filled in: others open menus."""
    return attributes.get("type", "").lower() == "checkbox" and attributes.get("role") != "button"


def _number(written: str | None) -> int | None:
    return int(written) if written and NUMBER.fullmatch(written) else None
