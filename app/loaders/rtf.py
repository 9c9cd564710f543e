"""RTF documents as Markdown: headings, lists, tables, notes and comments. The format knows no pages.

A text of groups in braces, which control words change the state of. What a group is for its first word tells; those of
a star may be skipped by whoever does not know them.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace

from app.errors import printable
from app.loaders.base import LONGEST_AUTHOR, Parsed, SourceFile
from app.loaders.marks import unescaped
from app.loaders.rtf_body import RichBody, joined
from app.loaders.rtf_group import BODY_LEVEL, FontCodecs, RichGroup
from app.loaders.rtf_words import (
    ASIDES,
    CHARACTERS,
    DESTINATIONS,
    ENDS,
    FORMATS,
    NAMED,
    STARRED,
    SYMBOLS,
    codec_of,
)
from app.loaders.soundness import RTF, expect
from app.loaders.text import first_heading

TOKEN = re.compile(rb"\\([A-Za-z]{1,32})(-?\d{1,10})? ?|\\'([0-9A-Fa-f]{2})|\\(.)|([{}])|([^\\{}]+)", re.S)
DEEPEST = 1_000  # groups within each other
MOST_ASIDES = 10  # notes, comments and boxes within each other that are texts of their own: each passes its text on
START = b"{\\rtf"
HEADING = re.compile(r"heading (\d)\b", re.I)
logger = logging.getLogger(__name__)


def load_rtf(source: SourceFile) -> Parsed:
    expect(source, RTF)
    data = source.data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not data.startswith(START):
        raise source.error("is no RTF document: it does not start as one; get the file again, or rename it")
    reader = _Reader(source)
    text = reader.read(data)
    return Parsed(text, "markdown", reader.title or first_heading(text) or source.name)


@dataclass
class _Aside:
    name: str
    depth: int  # of its group
    body: RichBody
    number: int = 0  # of a note


@dataclass
class _Reader:
    source: SourceFile
    title: str = ""
    _group: RichGroup = field(default_factory=RichGroup)
    _groups: list[RichGroup] = field(default_factory=list)  # that enclose it
    _bodies: list[_Aside] = field(default_factory=lambda: [_Aside("", 0, RichBody())])
    _notes: list[str] = field(default_factory=list)
    _raw: bytearray = field(default_factory=bytearray)  # text that is not decoded yet
    _named: list[str] = field(default_factory=list)  # of a group of NAMED
    _author: str = ""
    _fonts: FontCodecs = field(default_factory=FontCodecs)
    _headings: dict[int, int] = field(default_factory=dict)  # levels of styles
    _begins: bool = False  # nothing of the group is read yet
    _starred: bool = False  # the next word tells what a group of a star is
    _skip: int = 0  # characters that stand for one that is told by its number

    def read(self, data: bytes) -> str:
        at = 0
        while at < len(data):
            found = TOKEN.match(data, at)
            if found is None:  # a backslash at the end
                break
            at = found.end()
            word, number, byte, symbol, brace, text = found.groups()
            begins = self._begins
            self._begins = brace == b"{" or (begins and text is not None and not text.strip(b"\r\n"))
            if brace == b"{":
                self._open()
            elif brace:
                self._close()
                if not self._groups:
                    break
            elif word:
                at += self._control(word.decode("ascii"), None if number is None else int(number))
            elif byte:
                self._take(bytes.fromhex(byte.decode("ascii")))
            elif symbol:
                self._symbol(symbol, begins)
            elif text is not None and not self._group.skipped:
                self._take(text.replace(b"\r", b"").replace(b"\n", b""))
        return self._finish()

    def _finish(self) -> str:
        if self._groups:
            logger.warning("%s: is cut short: it ends amid its text", printable(self.source.path))
        while self._groups:
            self._close()
        body = self._bodies[0].body
        body.end_paragraph()
        for number, note in enumerate(self._notes, start=1):
            body.write(f"[{number}] {note}")
            body.end_paragraph()
        return body.close()

    def _open(self) -> None:
        self._flush()
        if len(self._groups) >= DEEPEST:
            raise self.source.error("nests its content too deep to be read as an RTF document: flatten it")
        self._groups.append(self._group)
        self._group = replace(self._group)
        self._starred, self._skip = False, 0

    def _close(self) -> None:
        self._flush()
        ended, depth = self._group, len(self._groups)
        self._group = self._groups.pop() if self._groups else RichGroup()
        self._starred, self._skip = False, 0
        if ended.destination and (ended.destination != self._group.destination or ended.destination == "stylesheet"):
            self._keep(joined(self._named).strip(), ended)
            self._named = []
        while depth and self._bodies[-1].depth == depth:
            self._close_aside()

    def _control(self, word: str, number: int | None) -> int:
        """What a control word does -> how many bytes behind it are no RTF."""
        if word == "bin":
            return max(0, number or 0)
        if self._starred:
            self._starred = False
            self._group.skipped = self._group.skipped or word not in STARRED
        if self._group.skipped:
            return 0
        if word == "u":
            self._flush()
            self._write(chr((number or 0) % 0x10000))
            self._skip = self._group.fallback
        elif word in CHARACTERS:
            self._character(CHARACTERS[word])
        elif word in DESTINATIONS:
            self._flush()
            self._begin(word)
        elif word in FORMATS:
            self._flush()
            self._format(word, number)
        elif word in ENDS and not (self._group.destination or self._group.quiet):
            self._flush()
            self._end(word)
        return 0

    def _character(self, text: str) -> None:
        if self._skip:
            self._skip -= 1
        else:
            self._flush()
            self._write(text)

    def _symbol(self, symbol: bytes, begins: bool) -> None:
        if symbol == b"*":
            self._starred = self._starred or begins
        elif symbol in SYMBOLS:
            self._character(SYMBOLS[symbol])
        elif symbol in b"\r\n":
            self._control("par", None)

    def _begin(self, word: str) -> None:
        """What the group is for."""
        self._group.begin(word)
        if word in NAMED:
            self._named = []
        if word in ASIDES and len(self._bodies) <= MOST_ASIDES:
            if word == "footnote":
                self._notes.append("")
                self._bodies[-1].body.write(f"[{len(self._notes)}]")
            self._bodies.append(_Aside(word, len(self._groups), RichBody(), len(self._notes)))

    def _format(self, word: str, number: int | None) -> None:
        group, fonts, value = self._group, self._fonts, 0 if number is None else number
        match word:
            case "f":
                group.font = value
            case "fcharset":
                fonts.tell_charset(group.font, value)
            case "cpg":
                fonts.tell_page(group.font, value)
            case "deff":
                fonts.plain = group.font = value
            case "ansicpg":
                fonts.common = codec_of(value)
            case "mac" | "pc" | "pca":
                fonts.common = {"mac": "mac-roman", "pc": "cp437", "pca": "cp850"}[word]
            case _:
                group.change(word, number)
        if word == "plain":
            group.font = fonts.plain

    def _end(self, word: str) -> None:
        """A paragraph, or a part of a table."""
        body, group = self._bodies[-1].body, self._group
        if word == "cell":
            body.end_cell()
        elif word == "row":
            body.end_row()
        else:
            level = group.outline + 1 if group.outline < BODY_LEVEL else self._headings.get(group.style, 0)
            body.end_paragraph(level, group.level, group.in_table)

    def _keep(self, text: str, ended: RichGroup) -> None:
        """A text that is none of the document's own."""
        match ended.destination:
            case "title":
                self.title = " ".join(text.split())
            case "atnauthor":
                self._author = " ".join(text.split())[:LONGEST_AUTHOR]
            case "listtext" | "pntext":
                self._bodies[-1].body.begin_item(text)
            case "stylesheet":
                found = HEADING.match(text)
                if ended.outline < BODY_LEVEL:
                    self._headings[ended.style] = ended.outline + 1
                elif found or text.lower() == "title;":
                    self._headings[ended.style] = int(found[1]) if found else 1

    def _close_aside(self) -> None:
        aside = self._bodies.pop()
        text, body = aside.body.close(), self._bodies[-1].body
        line = " ".join(unescaped(text).split())
        if aside.name == "footnote":
            self._notes[aside.number - 1] = line
        elif aside.name == "shptxt":
            body.add_behind(text)
        elif line:
            body.add_behind(f"Comment by {self._author}: {line}" if self._author else f"Comment: {line}")

    def _take(self, data: bytes) -> None:
        """Text as it stands, in the code page of its font."""
        if self._skip:
            dropped = min(self._skip, len(data))
            self._skip -= dropped
            data = data[dropped:]
        self._raw += data

    def _flush(self) -> None:
        if self._raw:
            self._write(self._raw.decode(self._fonts.codec(self._group.font), "replace"))
            self._raw.clear()

    def _write(self, text: str) -> None:
        if self._group.silent:
            return
        if self._group.destination:
            self._named.append(text)
        else:
            self._bodies[-1].body.write(text)
