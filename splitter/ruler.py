"""Where the tokens of a whole text stand, read block by block, so that a long text takes linear time."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from splitter import lines_as_lf
from splitter.base import Offsets, Tokens

BLOCK = 1 << 15  # characters
BREAK = re.compile(r"\s(?=\S)")


class Ruler:
    """`text` has the lines of `lines_as_lf`, so that marks are seen in a document of any system.

    Counts tokens between any two characters without tokenising again.

    The tokens are those of the whole text. A piece that stands alone may count a few more or less, so `count` has the
    last word on what leaves a splitter.
    """

    def __init__(self, text: str, tokens: Tokens):
        self.text = lines_as_lf(text)
        self._own = text
        self._tokens = tokens
        parts = [
            np.asarray([first for first, _ in tokens.offsets(text[start:end])], dtype=np.int64) + start
            for start, end in _blocks(text)
        ]
        self.starts: npt.NDArray[np.int64] = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def between(self, start: int, end: int) -> int:
        """Tokens that start in text[start:end]."""
        return bisect_left(self.starts, end) - bisect_left(self.starts, start)

    def after(self, start: int, tokens: int) -> int:
        """The character where so many tokens have gone by; the end of the text where there are not as many."""
        place = bisect_left(self.starts, start) + tokens
        return int(self.starts[place]) if place < len(self.starts) else len(self.text)

    def before(self, end: int, tokens: int) -> int:
        """The character from which so many tokens lead up to `end`; 0 where there are not as many."""
        place = bisect_left(self.starts, end) - tokens
        return int(self.starts[place]) if 0 <= place < len(self.starts) else 0

    def rank(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many tokens start before each place. [places]"""
        found: npt.NDArray[np.int64] = np.searchsorted(self.starts, places)
        return found

    def count(self, start: int, end: int) -> int:
        """Tokens of text[start:end] when it stands alone."""
        return self._tokens.count(self._own[start:end])


def _blocks(text: str) -> Iterator[Offsets]:
    """Between words where there are any: a block that starts inside a word would see other tokens."""
    start = 0
    while start < len(text):
        end = min(start + BLOCK, len(text))
        if end < len(text):
            found = BREAK.search(text, end, min(end + BLOCK // 8, len(text)))
            end = found.start() if found else end
        yield start, end
        start = end
