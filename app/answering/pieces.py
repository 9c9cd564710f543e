"""From the tokens of an answer, one by one, to pieces of its text, up to where it is to stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

BROKEN = "\ufffd"  # what a decoder writes for a part of a character
PATIENCE = 16  # tokens; no character has so many, so this is no beginning of one


class StopStrings:
    """A text up to the first of some strings, given in any pieces. The first is the one that is whole first; of those
    that end together, the longest. What may be the beginning of one waits until it is decided.
    """

    def __init__(self, strings: Sequence[str] = ()):
        self.found = False
        self._strings = strings
        self._longest = max(map(len, strings), default=0)
        self._waiting = ""  # the beginning of some string; shorter than the longest

    def add(self, text: str) -> str:
        """What is certain now to stand before any of them; nothing behind one."""
        if self.found:
            return ""
        text = self._waiting + text
        ends = [(place + len(one), -len(one)) for one in self._strings if (place := text.find(one)) >= 0]
        if ends:
            end, length = min(ends)
            self.found, self._waiting = True, ""
            return text[: end + length]
        waits = next(filter(self._may_begin, (text[-count:] for count in range(self._most(text), 0, -1))), "")
        self._waiting = waits
        return text[: len(text) - len(waits)]

    def end(self) -> str:
        """Nothing more comes: what waits was none of them."""
        text, self._waiting = self._waiting, ""
        return text

    def _most(self, text: str) -> int:
        return min(len(text), self._longest - 1)

    def _may_begin(self, text: str) -> bool:
        return any(one.startswith(text) for one in self._strings)


class Pieces:
    """Whole characters only, and linear in the answer: what is out is not decoded again, but for the last token or so.

    A decoder may treat the first token of all in a way of its own (it drops a leading space), so each new one is
    decoded behind those that came out before it. All pieces and `end()` together are the text without blank edges, up
    to the first stop string; or with its blanks where it goes on with a text, the end of which it stands `behind`.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stop: Sequence[str] = (),
        behind: Sequence[int] | None = None,
    ):
        self._decode = decode
        self._trims = behind is None
        self._ids = list(behind or ())  # those that came out last, then those that wait
        self._out = len(self._ids)  # how many of them are out
        self._before = decode(self._ids) if behind else ""  # the text of these
        self._blank = ""  # blanks that came and may be the last
        self._begun = False
        self._stop = StopStrings(stop)
        self._extent = Extent()

    @property
    def stopped(self) -> bool:
        """A stop string is there: the text is whole."""
        return self._stop.found

    @property
    def tokens(self) -> int:
        """How many tokens, of those that were added, the pieces so far are made of."""
        return self._extent.tokens

    @property
    def starts(self) -> Sequence[int]:
        """Of each token that was added, how many characters, with blank edges, stand before it."""
        return self._extent.starts

    def add(self, token: int) -> str:
        """The text that is certain now; it may be empty."""
        self._ids.append(token)
        self._extent.come()
        text = self._decode(self._ids)
        if text.endswith(BROKEN) and len(self._ids) - self._out < PATIENCE:
            return ""
        if text == self._before:  # a special token: behind it alone, a decoder would take the next for the first of all
            del self._ids[self._out :]
            return self._certain("")
        new = self._beyond(text)
        self._ids = self._ids[self._out :]
        self._out, self._before = len(self._ids), self._decode(self._ids)
        return self._certain(new)

    def end(self) -> str:
        """What still waits, without a character that was never finished."""
        text = self._decode(self._ids).rstrip(BROKEN) if self._out < len(self._ids) else ""
        piece = self._certain(self._beyond(text) if text else "")
        rest = self._stop.end()
        self._extent.give(len(rest), self._stop.found)
        return piece + self._trimmed(rest)

    def _certain(self, new: str) -> str:
        self._extent.note(len(new))
        certain = self._stop.add(new)
        self._extent.give(len(certain), self._stop.found)
        return self._trimmed(certain)

    def _beyond(self, text: str) -> str:
        if text.startswith(self._before):
            return text[len(self._before) :]
        # Patience had an end inside a character: its first part is out as BROKEN, and it is whole now.
        return text[len(self._before.rstrip(BROKEN)) :]

    def _trimmed(self, piece: str) -> str:
        if not self._trims:
            return piece
        whole = self._blank + piece if self._begun else piece.lstrip()
        kept = whole.rstrip()
        self._blank = whole[len(kept) :]
        self._begun = self._begun or bool(kept)
        return kept


class Extent:
    """Which tokens a text is made of, as far as it is out: those that begin in it, each once it is out or cut off."""

    def __init__(self) -> None:
        self.starts: list[int] = []  # of each token that came, in characters
        self.tokens = 0  # of these, those that are out
        self._said = self._out = 0  # characters
        self._start = 0  # of the first token that is not out, in characters
        self._ends = deque[tuple[int, int]]()  # characters and tokens up to where some text ended that is not all out

    def come(self) -> None:
        """A token; one that is a part of a character begins with it."""
        self.starts.append(self._said)

    def note(self, characters: int) -> None:
        """What came since the last time says so much."""
        if self._ends and not characters:
            self._ends.pop()
        self._said += characters
        self._ends.append((self._said, len(self.starts)))

    def give(self, characters: int, cut: bool) -> None:
        """So many more are out, and no more will be where the text is `cut`."""
        self._out += characters
        while self._ends and (self._ends[0][0] <= self._out or (cut and self._start < self._out)):
            self._start, self.tokens = self._ends.popleft()
