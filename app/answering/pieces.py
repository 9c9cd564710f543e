"""Tokens of an answer, one by one, to pieces of its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"  # what a decoder writes for a part of a character
PATIENCE = 16  # tokens; no character has so many, so this is no beginning of one


class Pieces:
    """Whole characters only, and linear in the answer: what is out is not decoded again, but for the last token or so.

    A decoder may treat the first token of all in a way of its own (it drops a leading space), so each new one is
    decoded behind those that came out before it. All pieces and `end()` together are the text without blank edges.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]):
        self._decode = decode
        self._ids: list[int] = []  # those that came out last, then those that wait
        self._out = 0  # how many of them are out
        self._before = ""  # the text of these
        self._blank = ""  # blanks that came and may be the last
        self._begun = False

    def add(self, token: int) -> str:
        """The text that is certain now; it may be empty."""
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith(BROKEN) and len(self._ids) - self._out < PATIENCE:
            return ""
        if text == self._before:  # a special token: behind it alone, a decoder would take the next for the first of all
            del self._ids[self._out :]
            return ""
        new = self._beyond(text)
        self._ids = self._ids[self._out :]
        self._out, self._before = len(self._ids), self._decode(self._ids)
        return self._trimmed(new)

    def end(self) -> str:
        """What still waits, without a character that was never finished."""
        text = self._decode(self._ids).rstrip(BROKEN) if self._out < len(self._ids) else ""
        return self._trimmed(self._beyond(text)).rstrip() if text else ""

    def _beyond(self, text: str) -> str:
        if text.startswith(self._before):
            return text[len(self._before) :]
        # Patience had an end inside a character: its first part is out as BROKEN, and it is whole now.
        return text[len(self._before.rstrip(BROKEN)) :]

    def _trimmed(self, piece: str) -> str:
        whole = self._blank + piece if self._begun else piece.lstrip()
        kept = whole.rstrip()
        self._blank = whole[len(kept) :]
        self._begun = self._begun or bool(kept)
        return kept
