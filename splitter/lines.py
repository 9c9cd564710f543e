"""Lines of documents of any system. It imports nothing: whoever only reads files uses it too."""

from __future__ import annotations

# What ends a line beside \n, and is one character: a lone carriage return, next line, line and paragraph separator.
ENDS = str.maketrans(dict.fromkeys("\r\x85\u2028\u2029", "\n"))


def lines_as_lf(text: str) -> str:
    r"""The text with \n alone at the ends of its lines, character for character, so that offsets stay."""
    return text if text.isascii() and "\r" not in text else text.replace("\r\n", " \n").translate(ENDS)
