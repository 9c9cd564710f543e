"""Where the tokens of a whole text stand, read block by block, so that a long text takes linear time.

By them it keeps the hard limits: whatever spans a splitter would like, each leaves within the minimum and the maximum.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import ceil
from unicodedata import category

import numpy as np
import numpy.typing as npt

from splitter.base import ChunkLimits, Offsets, Tokens
from splitter.documents import SENTENCE_END, lines_as_lf

BLOCK = 1 << 15  # characters
BREAK = re.compile(r"\s(?=\S)")
# Where a text is best cut, strongest first. Each is looked for in a bounded stretch.
SENTENCE = rf"""[.!?…]["')\]”’]{{0,3}}\s+|[。！？]|{SENTENCE_END}\s*+"""
BORDERS = tuple(map(re.compile, (r"\n\s*\n\s*", r"\n\s*", SENTENCE, r"\s+")))
WORD = re.compile(r"\S")
WORD_START = re.compile(r"(?<!\S)\S")
JOINER = "\u200d"
# No marks to Unicode, and within a character too: joiners, tones of skin, the tags of a flag, vowels and ends of
# syllables in Hangul that is written in parts, a vowel of Thai and of Lao, halfwidth signs of kana.
GOES_ON = re.compile(
    "[\u200c\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u1160-\u11ff\ud7b0-\ud7fb\u0e33\u0eb3\uff9e\uff9f]"
)
# Signs that join the letter before them to the one behind, in scripts that write the two as one.
STACKERS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d\u1039\u17d2\u1a60\u1b44\ua9c0"
HALF_OF_A_FLAG = range(0x1F1E6, 0x1F200)
LONGEST_CHARACTER = 16  # of Unicode's; what is longer is cut
TRIES = 32  # cuts that are tried to bring two neighbours within both limits


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


def fit(ruler: Ruler, spans: Iterable[Offsets], limits: ChunkLimits) -> list[Offsets]:
    """The spans, trimmed of blank edges; those above the maximum cut, those below the minimum joined to neighbours.

    One character that counts more than the maximum, and words in so much blank space that no neighbour is near, are
    all that may lie outside.
    """
    most = limits.max_tokens - limits.overlap
    pieces: list[tuple[Offsets, int]] = []  # with their counts
    for span in spans:
        for piece, count in _cut(ruler, trim(ruler.text, *span), most):
            _add(ruler, pieces, piece, count, limits.min_tokens, most)
    return [piece for piece, _ in pieces]


def overlapped(ruler: Ruler, pieces: list[Offsets], limits: ChunkLimits) -> list[Offsets]:
    """Each piece, but the first, starts up to `overlap` tokens earlier, where a word does."""
    if not limits.overlap:
        return pieces
    grown = pieces[:1]
    for start, end in pieces[1:]:
        early = max(ruler.before(start, limits.overlap), grown[-1][0] + 1)
        while early < start:
            word = WORD_START.search(ruler.text, early, start)
            early = word.start() if word else start
            if ruler.count(early, end) <= limits.max_tokens:
                break
            early += (start - early + 1) // 2
        grown.append((early, end))
    return grown


def trim(text: str, start: int, end: int) -> Offsets:
    """Without blank edges; an empty span where all of it is blank."""
    part = text[start:end]
    kept = part.strip()
    first = start + len(part) - len(part.lstrip()) if kept else start
    return first, first + len(kept)


def border(text: str, low: int, high: int) -> int:
    """The last of the strongest borders in text[low:high], and `high` where there is none."""
    for pattern in BORDERS:
        last = 0
        for found in pattern.finditer(text, low, high):
            last = found.end()
        if last:
            return last
    return high


def at_a_character(text: str, start: int, cut: int) -> int:
    """The cut, or where the character that it falls into begins behind `start`: letters have marks, pictures parts."""
    place = cut
    while cut - place < LONGEST_CHARACTER and _is_within(text, start, place):
        place -= 1
    return place if place > start and not _is_within(text, start, place) else cut


def _is_within(text: str, start: int, place: int) -> bool:
    """Whether a character that is seen as one goes on there."""
    if not start < place < len(text) or text[place - 1].isspace():
        return False
    if text[place - 1] == JOINER or category(text[place])[0] == "M" or GOES_ON.match(text, place):
        return True
    if text[place - 1] in STACKERS and category(text[place])[0] == "L":
        return True
    first = place
    while first > start and ord(text[place]) in HALF_OF_A_FLAG and ord(text[first - 1]) in HALF_OF_A_FLAG:
        first -= 1
    return (place - first) % 2 == 1


def _cut(ruler: Ruler, span: Offsets, most: int) -> Iterator[tuple[Offsets, int]]:
    """Even parts of at most `most` tokens, at borders, with their counts."""
    start, end = span
    while start < end:
        tokens = ruler.between(start, end)
        # What is far above needs no exact count to be cut.
        if tokens <= 2 * most and (count := ruler.count(start, end)) <= most:
            yield (start, end), count
            return
        share = ceil(tokens / max(2, ceil(tokens / most)))
        stop = border(ruler.text, ruler.after(start, ceil(share * 3 / 4)), min(ruler.after(start, share), end))
        stop = at_a_character(ruler.text, start, min(max(stop, start + 1), end))
        piece, count = _within(ruler, start, stop, most)
        if piece[0] < piece[1]:
            yield piece, count
        found = WORD.search(ruler.text, max(piece[1], start + 1), end)
        start = found.start() if found else end


def _within(ruler: Ruler, start: int, stop: int, most: int) -> tuple[Offsets, int]:
    piece = trim(ruler.text, start, stop)
    count = ruler.count(*piece)
    while count > most and piece[1] - piece[0] > 1:
        middle = piece[0] + (piece[1] - piece[0]) // 2
        stop = border(ruler.text, middle, middle + (piece[1] - middle) // 2)
        piece = trim(ruler.text, piece[0], at_a_character(ruler.text, piece[0], stop))
        count = ruler.count(*piece)
    return piece, count


def _add(ruler: Ruler, pieces: list[tuple[Offsets, int]], piece: Offsets, count: int, least: int, most: int) -> None:
    if not pieces or min(count, pieces[-1][1]) >= least:
        pieces.append((piece, count))
        return
    before = pieces.pop()
    union = (before[0][0], piece[1])
    # Neighbours are longer than both together only by the blank space between them, which may be any length.
    if ruler.between(*union) <= 2 * most and (total := ruler.count(*union)) <= most:
        pieces.append((union, total))
    else:
        pieces += _halves(ruler, union, least, most) or [before, (piece, count)]


def _halves(ruler: Ruler, union: Offsets, least: int, most: int) -> list[tuple[Offsets, int]] | None:
    """Two pieces within both limits, cut at the strongest border about the middle; None where there are none."""
    start, end = union
    tokens = ruler.between(start, end)
    middle = tokens // 2
    best = border(ruler.text, ruler.after(start, (tokens - least) // 2), ruler.after(start, ceil((tokens + least) / 2)))
    steps = (middle + side * step for step in range(TRIES // 2) for side in (1, -1))
    cuts = (best, *(ruler.after(start, step) for step in steps if 0 < step < tokens))
    for cut in dict.fromkeys((*(at_a_character(ruler.text, start, cut) for cut in cuts), *cuts)):
        if start < cut < end:
            halves = [(half, ruler.count(*half)) for half in (trim(ruler.text, start, cut), trim(ruler.text, cut, end))]
            if all(least <= count <= most for _, count in halves):
                return halves
    return None
