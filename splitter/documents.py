"""What is known of a document before it is split: its kind, and what ends its lines and its sentences.

Little is imported here: whoever only reads files or looks at documents uses it too.
"""

from __future__ import annotations

import re

from splitter.spec import SplitterError

KINDS = ("prose", "markdown", "html", "code", "table", "chat", "items")
# Rows and records have nothing to do with each other: there is no meaning to follow from one to the next.
INDEPENDENT = ("items", "table")
WAYS = {"code": "blocks between blank lines", "chat": "turns"} | dict.fromkeys(INDEPENDENT, "even windows of rows")


def way(spec: str, kind: str, headed: bool) -> str:
    """What `auto` chooses for a document of this kind, and why; `headed`: any of its pieces is below a heading.

    "" of all other splitters, which have no choice.
    """
    if spec.partition(":")[0].strip() != "auto":
        return ""
    return f"{kind} ({WAYS.get(kind, 'below its headings' if headed else 'where meaning turns')})"


def check_kind(kind: str) -> str:
    if kind not in KINDS:
        raise SplitterError(f"unknown kind of document {kind!r}: choose from {', '.join(KINDS)}")
    return kind


# Front matter as Hugo, Jekyll and Obsidian write it: all at its margin is YAML, or it is a text below a thematic break.
FRONT_MATTER = re.compile(
    r"""---[ \t]*+\n
    (?=[^\s\#-])
    (?:(?!(?:---|\.\.\.)[ \t]*+(?:\n|\Z))
    (?:[ \t]*+|[ \t\#\]}-][^\n]*+|[^\s:\#-][^:\n]{0,100}+:(?:[ \t][^\n]*+)?)\n){1,200}+
    (?:---|\.\.\.)[ \t]*+(?:\n|\Z)""",
    re.VERBOSE,
)
# What ends a sentence in Hindi and its neighbours, Urdu and Arabic, Amharic, Armenian, Burmese and Khmer.
STOPS = "।॥۔؟።፧։။។៕"
# With what closes behind it. Urdu writes its stop into numbers too.
SENTENCE_END = rf"""(?:(?<!\d)[{STOPS}]|[{STOPS}](?!\d))[{STOPS}.!?…]*+(?:["')\]”“’»*_]{{0,4}}(?!\w))?"""
# What ends a line beside \n, and is one character: a lone carriage return, next line, line and paragraph separator.
ENDS = str.maketrans(dict.fromkeys("\r\x85\u2028\u2029", "\n"))


def lines_as_lf(text: str) -> str:
    r"""The text with \n alone at the ends of its lines, character for character, so that offsets stay."""
    return text if text.isascii() and "\r" not in text else text.replace("\r\n", " \n").translate(ENDS)


def front_matter_end(text: str) -> int:
    """Where the front matter of a text with the lines of `lines_as_lf` ends; 0 where there is none."""
    found = FRONT_MATTER.match(text)
    return found.end() if found else 0
