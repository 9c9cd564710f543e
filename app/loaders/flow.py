"""A column of blocks of Markdown: the text of a page, or of a cell of a table."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# What HTML calls white space; a no-break space is a character.
SPACES = re.compile(r"[ \t\n\r\f]+")
BREAK = "\0"  # a <br>: HTML cannot hold this character
AROUND_BREAK = re.compile(rf" ?{BREAK} ?")
DEEPEST = 10  # levels that are shown; a page may nest 100,000, and each line would be marked as often
ENDING = re.compile(r"[^\W\d_]{2,}")  # raised letters of 1st, Mme and ™, which are no exponent
ORDINAL = re.compile(r"[eoarsdt]")  # one raised letter of 2e, XXe, no, 1a and Mr, behind what is COUNTED
COUNTED = re.compile(r"(?:\d|(?<!\w)(?:[IVXLCDM]+|[nN]))\Z")
ONE_TERM = re.compile(r"[-+−–]?[\w.,]+")


@dataclass
class Flow:
    """What grows at its end."""

    blocks: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)  # of the block that grows
    mark: str = ""  # what the next block starts with: of a heading or list item
    indent: str = ""  # of what follows in the same list item
    lists: list[int | None] = field(default_factory=list)  # numbers of the items so far; None where they have none
    quotes: int = 0
    heading: bool = False
    title: int = 0  # where in `inline` the page's title starts, while it grows
    structured: bool = False  # holds more than paragraphs
    rows: int = 1  # of a table, that it covers
    columns: int = 1

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

    def begin_item(self, number: int | None) -> None:
        """Of a list, or outside of any; `number` is for this and those behind it, where the list has numbers."""
        if self.lists and self.lists[-1] is not None:
            number = self.lists[-1] = self.lists[-1] + 1 if number is None else number
        else:
            number = None
        self.mark = "  " * min(len(self.lists) - 1, DEEPEST) + ("- " if number is None else f"{number}. ")
        self.indent = " " * len(self.mark)

    def raise_from(self, start: int, linked: bool) -> None:
        """What is inline from there on is superscript: 10^6 is not 106, and a linked mark of a note is no power."""
        content = "".join(self.inline[start:])
        raised, before = content.strip(), self.inline[start - 1][-1:] if start else BREAK
        if before == BREAK or before.isspace() or not any(map(str.isalnum, raised)):
            return
        if linked:
            raised = raised if raised[0] in "[(" else f"[{raised}]"
        elif not ENDING.fullmatch(raised) and not (
            ORDINAL.fullmatch(raised) and COUNTED.search(self.inline[start - 1])
        ):
            raised = f"^{raised}" if ONE_TERM.fullmatch(raised) else f"^({raised})"
        self.inline[start:] = [raised, " "] if content[-1].isspace() else [raised]


def _is_item(block: str) -> bool:
    return re.match(r"\s*+(?:> )*+\s*+(?:- |\d++\. )", block) is not None
