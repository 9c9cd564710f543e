"""Where the texts stand that another program has cut a text into.

What such a program says of its offsets may be wrong: llama-index looks for each node behind the start of the one before
it, and finds too early a place in a text that repeats itself. Blank space is no help, since parsers change it. So texts
are laid over the characters that are not blank, where each begins at the latest where the one before it ends, and the
last one ends with the text. One that lies wholly within the one before it says nothing new, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import ceil

import numpy as np

from splitter.base import Offsets
from splitter.units import Ints

# How often a part may be looked for, on average, and what that costs beside the characters that are compared: a text
# that repeats itself has many ways to lay parts over it that overlap.
TRIES = 8
TRY = 256
LEAST = 1 << 24  # characters that any text may cost
SHOWN = 40  # characters of a part that is told of
BLANKS = [code for code in range(0x3001) if chr(code).isspace()]  # there are none above


class Misplaced(ValueError):
    """Parts that are no spans of the text. Says what is wrong with them, as in "it …"."""


def places(text: str, parts: Sequence[tuple[str, int | None]]) -> list[Offsets]:
    """Of parts, each with the offset that it is said to have; blank ones and those within others are left out.

    Spans of `text` without blank edges: starts and ends ascend, and each character that is not blank is in one. Raises
    Misplaced where there are none such, and where finding them takes too long.
    """
    at, dense = _solid(text), _dense(text)
    kept = [(_dense(part), said) for part, said in parts if part.strip()]
    texts = [part for part, _ in kept]
    found, plain, nested = _as_said(dense, at, kept), Layout(dense, texts), Layout(dense, texts, nested=True)
    if found is None:
        found = plain.spans()
    if found is None and not plain.exhausted:
        found = nested.spans()
    if found is None:
        shown = [part for part, _ in parts if part.strip()]
        raise Misplaced(_fault(dense, texts, shown, plain.exhausted or nested.exhausted))
    return [(int(at[start]), int(at[end - 1]) + 1) for start, end in found]


def _dense(text: str) -> str:
    return "".join(text.split())


def _solid(text: str) -> Ints:
    """The places of the characters that are not blank. [characters]"""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return np.flatnonzero(~np.isin(codes, BLANKS))


def _as_said(dense: str, at: Ints, kept: Sequence[tuple[str, int | None]]) -> list[Offsets] | None:
    """Spans of `dense` as the offsets say, where they hold."""
    spans: list[Offsets] = []
    start, end = -1, 0
    for part, said in kept:
        if said is None:
            return None
        found = int(np.searchsorted(at, said))
        if not dense.startswith(part, found):
            return None
        if start <= found and found + len(part) <= end:
            continue  # within the one before
        if not start < found <= end < found + len(part):
            return None
        start, end = found, found + len(part)
        spans.append((start, end))
    return spans if end == len(dense) else None


class Layout:
    """Parts over `dense`: the one after the other, and with what they share spread evenly where there are several ways.

    Depth first, without a place that led nowhere before. `nested`: a part may lie within the one before it. `spent` is
    what it has cost so far, in characters that were compared, and never goes far beyond `allowed`.
    """

    def __init__(self, dense: str, texts: Sequence[str], nested: bool = False):
        self._dense, self._backwards = dense, dense[::-1]
        self._texts, self._nested = texts, nested
        lengths = [len(part) for part in texts]
        sharing = lengths[1:] if nested else [min(pair) - 1 for pair in pairwise(lengths)]
        self._left = list(accumulate(reversed(lengths), initial=0))[::-1]  # characters from each part on
        self._most = list(accumulate(reversed(sharing), initial=0))[::-1]  # of them, those after it may share so many
        self.allowed = LEAST + TRIES * sum(length + TRY for length in lengths)
        self.spent = 0

    @property
    def exhausted(self) -> bool:
        return self.spent >= self.allowed

    def spans(self) -> list[Offsets] | None:
        """None where there are none, and where finding them takes too long."""
        dense, texts = self._dense, self._texts
        if not texts:
            return None if dense else []
        if not 0 <= self._left[0] - len(dense) <= self._most[0] or not dense.startswith(texts[0]):
            return None
        path = [(0, len(texts[0]))]
        open_ = [self._after(0, path[0])]
        dead: set[tuple[int, Offsets]] = set()
        while len(path) < len(texts):
            if self.exhausted:
                return None
            number = len(path)
            found = next((one for one in open_[-1] if (number, one) not in dead), None)
            if found is not None:
                path.append(found)
                open_.append(self._after(number, found))
                continue
            dead.add((number - 1, path.pop()))
            open_.pop()
            if not path:
                return None
        return list(dict.fromkeys(path))  # a part within the one before has its span

    def _after(self, number: int, span: Offsets) -> Iterator[Offsets]:
        """Where the part after this one may stand, the likeliest first, looked for as they are asked for."""
        start, end = span
        if number + 1 == len(self._texts):
            return
        part = self._texts[number + 1]
        shared = end + self._left[number + 1] - len(self._dense)  # that parts from here on still have to share
        fewest = max(0, shared - self._most[number + 1])
        most = min(shared, end - start - 1, len(part) - 1)
        likely = end - shared / (len(self._texts) - number - 1)
        for found in self._nearest(part, end - most, end - fewest, likely):
            yield found, found + len(part)
        if self._nested and fewest <= len(part) <= min(shared, end - start) and self._has(part, start, end):
            yield span

    def _nearest(self, part: str, low: int, high: int, likely: float) -> Iterator[int]:
        """Where it starts from `low` to `high`, both included, the nearest to `likely` first."""
        middle = min(max(ceil(likely), low), high + 1)
        above, below = self._next(part, middle, high), self._last(part, low, middle - 1)
        while above is not None or below is not None:
            if above is None or (below is not None and likely - below <= above - likely):
                assert below is not None
                yield below
                below = self._last(part, low, below - 1)
            else:
                yield above
                above = self._next(part, above + 1, high)

    def _next(self, part: str, low: int, high: int) -> int | None:
        """The first start from `low` to `high`."""
        return self._find(self._dense, part, low, high)

    def _last(self, part: str, low: int, high: int) -> int | None:
        """The last one. str.rfind takes quadratic time where a text repeats itself, and str.find does not."""
        beyond = len(self._dense) - len(part)
        found = self._find(self._backwards, part[::-1], beyond - high, beyond - low)
        return None if found is None else beyond - found

    def _has(self, part: str, start: int, end: int) -> bool:
        return self._next(part, start, end - len(part)) is not None

    def _find(self, text: str, part: str, low: int, high: int) -> int | None:
        if low > high or self.exhausted:
            return None
        low = max(0, low)
        found = text.find(part, low, high + len(part))
        self.spent += TRY + len(part) + (high if found < 0 else found) - low
        return None if found < 0 else found


def _fault(dense: str, texts: Sequence[str], shown: Sequence[str], exhausted: bool) -> str:
    """What is wrong with parts that have no places, by the first place that each may have; `shown`: as they came.

    `exhausted`: not all ways were tried, so they may have places for all that is known.
    """
    start, end = 0, 0
    for number, (part, raw) in enumerate(zip(texts, shown, strict=True), 1):
        words = " ".join(raw.split())
        told = f"its node {number}, {words[:SHOWN] + '…' if len(words) > SHOWN else words!r}"
        found = dense.find(part, start)
        if found < 0:
            return f"turns the order of this text round at {told}" if part in dense else f"changes this text in {told}"
        if found > end and not exhausted:
            return f"leaves some of this text out before {told}"
        start, end = found, max(end, found + len(part))
    if exhausted:
        return "cuts a text that repeats itself so much that nobody can tell where its nodes stand"
    if end < len(dense):
        return "leaves the end of this text out" if texts else "makes no nodes of this text"
    return "makes nodes of this text that do not stand one behind the other"
