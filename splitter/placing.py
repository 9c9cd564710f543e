"""Where the texts stand that another program has cut a text into.

What such a program says of its offsets may be wrong: llama-index looks for each node behind the start of the one before
it, and finds too early a place in a text that repeats itself. Blank space is no help, since parsers change it. So texts
are laid over the characters that are not blank, where each begins at the latest where the one before it ends, and the
last one ends with the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from splitter.base import Offsets
from splitter.units import Ints

# Places that are tried, per part: a text that repeats itself has many ways to lay parts over it that overlap.
TRIES = 8
LEAST_TRIES = 1000
BLANKS = [code for code in range(0x3001) if chr(code).isspace()]  # there are none above


def places(text: str, parts: Sequence[tuple[str, int | None]]) -> list[Offsets] | None:
    """Of parts, each with the offset that it is said to have; blank ones are left out.

    Spans of `text` without blank edges: starts and ends ascend, and each character that is not blank is in one. None
    where there are none such.
    """
    at = _solid(text)
    dense = _dense(text)
    kept = [(_dense(part), said) for part, said in parts if part.strip()]
    texts = [part for part, _ in kept]
    starts = _as_said(dense, at, kept) or _searched(dense, texts)
    if starts is None:
        return None
    return [(int(at[start]), int(at[start + len(part) - 1]) + 1) for start, part in zip(starts, texts, strict=True)]


def _dense(text: str) -> str:
    return "".join(text.split())


def _solid(text: str) -> Ints:
    """The places of the characters that are not blank. [characters]"""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return np.flatnonzero(~np.isin(codes, BLANKS))


def _as_said(dense: str, at: Ints, kept: Sequence[tuple[str, int | None]]) -> list[int] | None:
    """Starts in `dense` as the offsets say, where they hold."""
    starts: list[int] = []
    start, end = -1, 0
    for part, said in kept:
        if said is None:
            return None
        found = int(np.searchsorted(at, said))
        if not start < found <= end < found + len(part) or not dense.startswith(part, found):
            return None
        start, end = found, found + len(part)
        starts.append(start)
    return starts if end == len(dense) else None


def _searched(dense: str, texts: Sequence[str]) -> list[int] | None:
    """Starts in `dense`: the one after the other, and with what they share spread evenly where there are several ways.

    Depth first, without a place that led nowhere before.
    """
    if not texts:
        return [] if not dense else None
    left = list(accumulate((len(part) for part in reversed(texts)), initial=0))[::-1]  # from each part on
    shared = left[0] - len(dense)  # characters that stand in two parts, in all
    if shared < 0 or not dense.startswith(texts[0]):
        return None
    starts = [0]
    open_: list[Iterator[int]] = [_candidates(dense, texts, left, 0, 0)]
    dead: set[tuple[int, int]] = set()
    tries = LEAST_TRIES + TRIES * len(texts)
    while open_:
        number = len(starts)
        if number == len(texts) and starts[-1] + len(texts[-1]) == len(dense):
            return starts
        found = next((one for one in open_[-1] if (number, one) not in dead), None)
        tries -= 1
        if found is None:
            dead.add((number - 1, starts.pop()))
            open_.pop()
        elif not tries:
            return None
        else:
            starts.append(found)
            open_.append(_candidates(dense, texts, left, number, found))
    return None


def _candidates(dense: str, texts: Sequence[str], left: Sequence[int], number: int, start: int) -> Iterator[int]:
    """Where the part after this one may start, the likeliest first."""
    if number + 1 == len(texts):
        return iter(())
    part, end = texts[number + 1], start + len(texts[number])
    shared = end + left[number + 1] - len(dense)  # that parts from here on still have to share
    if shared < 0:
        return iter(())
    if not shared:
        return iter((end,) if dense.startswith(part, end) else ())
    found: list[int] = []
    place = dense.find(part, max(start + 1, end - shared), end + len(part))
    while place >= 0:
        if place + len(part) > end:
            found.append(place)
        place = dense.find(part, place + 1, end + len(part))
    likely = end - shared / (len(texts) - number - 1)
    return iter(sorted(found, key=lambda one: abs(one - likely)))
