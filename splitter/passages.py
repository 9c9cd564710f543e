"""Plain passages: whole sentences packed up to a limit of tokens. Offsets into the text, never copies of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from splitter import SplitterError
from splitter.lines import lines_as_lf

Offsets = tuple[int, int]
Count = Callable[[str], int]

# One mark at a time and no nested repeats, so that a million dots or spaces still take linear time.
SENTENCE_END = re.compile(r"""[.!?…]["')\]”’]{0,3}(?=\s)|[。！？]|\n(?=[ \t\r]*\n)""")
WORD = re.compile(r"\S+")


def split_passages(text: str, count: Count, limit: int) -> list[Offsets]:
    """Offsets of passages of at most `limit` tokens by `count`; together they hold all of the text but blank edges.

    A sentence that is longer is cut between words, and a word that is longer anywhere. Linear in the text, as far as
    `count` is.
    """
    if limit < 1:
        raise SplitterError(f"a passage of at most {limit} tokens holds nothing: allow at least 1")
    passages: list[Offsets] = []
    taken: list[Offsets] = []  # pieces of the passage that grows
    total = 0
    for start, end in _pieces(text, count, limit):
        grown = total + count(text[taken[-1][1] : end]) if taken else count(text[start:end])
        while taken and grown > limit:
            taken = _close(passages, taken, text, count, limit)
            grown = count(text[taken[0][0] if taken else start : end])
        taken.append((start, end))
        total = grown
    while taken:
        taken = _close(passages, taken, text, count, limit)
    return passages


def _close(passages: list[Offsets], taken: list[Offsets], text: str, count: Count, limit: int) -> list[Offsets]:
    """Add the pieces as a passage -> those that did not fit after all: counts of pieces do not quite add up."""
    kept = len(taken)
    while kept > 1 and count(text[taken[0][0] : taken[kept - 1][1]]) > limit:
        kept -= 1
    passages.append((taken[0][0], taken[kept - 1][1]))
    return taken[kept:]


def _pieces(text: str, count: Count, limit: int) -> Iterator[Offsets]:
    """Sentences, and in the place of those above the limit their words, and in the place of such words slices."""
    for sentence in _sentences(text):
        if count(text[slice(*sentence)]) <= limit:
            yield sentence
            continue
        for word in WORD.finditer(text, *sentence):
            if count(word.group()) <= limit:
                yield word.span()
            else:
                yield from _slices(text, *word.span(), count, limit)


def _sentences(text: str) -> Iterator[Offsets]:
    start = 0
    for end in (*(found.end() for found in SENTENCE_END.finditer(lines_as_lf(text))), len(text)):
        sentence = text[start:end]
        blank = len(sentence) - len(sentence.lstrip())
        if blank < len(sentence):
            yield start + blank, start + len(sentence.rstrip())
        start = end


def _slices(text: str, start: int, end: int, count: Count, limit: int) -> Iterator[Offsets]:
    """A word of any length in slices; one character is not cut, whatever it counts."""
    while start < end:
        stop = min(start + limit, end)
        while stop - start > 1 and count(text[start:stop]) > limit:
            stop = start + (stop - start) // 2
        yield start, stop
        start = stop
