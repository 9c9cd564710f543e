"""The smallest spans that a splitter moves: sentences, or what its author set apart.

Sentences are by NLTK's Punkt, from the data that comes with llama-index: nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from splitter.base import Offsets
from splitter.documents import SENTENCE_END, STOPS
from splitter.ruler import Ruler, at_a_character
from splitter.spec import SplitterError

DATA = Path("_static", "nltk_cache", "tokenizers", "punkt_tab", "english")
# Punkt sees so much at a time, and goes on where the last sentence of that began: a longer one is cut.
WINDOW = 2048
GAP = re.compile(r"\s(?=\S)")
# Punkt knows the stops of Latin alone, and those with a space behind them.
OTHER_STOP = re.compile(rf"[。！？｡]+[」』”’）]*|{SENTENCE_END}")
_READING = threading.Lock()  # two threads would read it twice
DECISIONS = 1 << 16  # how many contexts of a stop are remembered: a text of nothing but stops repeats them
Ints = npt.NDArray[np.int64]
# A line with something on it, and the blank space before it.
LINE = re.compile(r"\S[^\n\r\f\v\x85\u2028\u2029]*")
BLANK_LINE = re.compile(r"\n[^\S\n]*+\n|\f")
GAP_OF_A_PASSAGE = re.compile(r"\n[^\S\n]*+\n[^\S\n]*+\n|\f")
BULLET = re.compile(r"(?:[-*+•–—#>|]|\(?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)])\s")
FULL_STOP = re.compile(rf"[.!?:;…。！？{STOPS}][\"')\]”’]*$")
OPENING = re.compile(r"[\W_]*(?:\d{1,4}|[^\W\d_]{0,2})[\W_]*")
# Lines of such a length that end in no stop were broken by a program, not by the author.
WRAPPED = range(40, 121)


class Punkt(Protocol):
    def span_tokenize(self, text: str) -> Iterable[Offsets]: ...


def sentence_spans(text: str, start: int, end: int) -> Iterator[Offsets]:
    """Sentences of text[start:end], ascending, without blank edges."""
    with _READING:
        punkt = _punkt()
    while start < end:
        stop = _stop(text, start, end)
        found = list(punkt.span_tokenize(text[start:stop]))
        whole = stop == end or len(found) < 2
        for first, last in found if whole else found[:-1]:
            yield from _at_other_stops(text, start + first, start + last)
        start = stop if whole else start + found[-1][0]


def _stop(text: str, start: int, end: int) -> int:
    if end - start <= WINDOW:
        return end
    found = GAP.search(text, start + WINDOW, min(end, start + 2 * WINDOW))
    return found.end() - 1 if found else at_a_character(text, start, min(end, start + 2 * WINDOW))


def _at_other_stops(text: str, first: int, last: int) -> Iterator[Offsets]:
    for cut in (*(found.end() for found in OTHER_STOP.finditer(text, first, last)), last):
        sentence = text[first:cut]
        if kept := sentence.strip():
            blank = len(sentence) - len(sentence.lstrip())
            yield first + blank, first + blank + len(kept)
        first = cut


@lru_cache(maxsize=1)
def _punkt() -> Punkt:
    """Read once; what it knows never changes afterwards."""
    module, decoder = import_module("nltk.tokenize.punkt"), import_module("nltk.tabdata").PunktDecoder()
    parameters, folder = module.PunktParameters(), _folder()
    # Opened here: NLTK's own reader refuses folders that are not on its search path, which all programs share.
    with (folder / "collocations.tab").open(encoding="utf-8") as file:
        parameters.collocations = set(decoder.tab2tups(file))
    with (folder / "sent_starters.txt").open(encoding="utf-8") as file:
        parameters.sent_starters = decoder.txt2set(file)
    with (folder / "abbrev_types.txt").open(encoding="utf-8") as file:
        parameters.abbrev_types = decoder.txt2set(file)
    with (folder / "ortho_context.tab").open(encoding="utf-8") as file:
        parameters.ortho_context = decoder.tab2intdict(file)
    made = module.PunktSentenceTokenizer(parameters)
    made.text_contains_sentbreak = lru_cache(DECISIONS)(made.text_contains_sentbreak)
    punkt: Punkt = made
    return punkt


def _folder() -> Path:
    # Found, not imported: llama-index is slow to import.
    spec = importlib.util.find_spec("llama_index.core")
    places = spec.submodule_search_locations if spec else None
    folder = Path(places[0]) / DATA if places else None
    if folder is None or not folder.is_dir():
        raise SplitterError("the sentence data of llama-index-core is not there: pip install llama-index-core")
    return folder


class Border(IntEnum):
    """What the author put before a unit."""

    SENTENCE = 0
    LINE = 1
    PARAGRAPH = 2
    SECTION = 3


GRANULARITIES = {"sentence": Border.SENTENCE, "paragraph": Border.PARAGRAPH, "passage": Border.SECTION}
Marked = tuple[int, int, Border]  # a span and what stands before it


@dataclass(frozen=True)
class Units:
    """Ascending spans, what stands before each, and how many tokens of the text go before its ends. All [units]"""

    starts: Ints
    ends: Ints
    borders: Ints
    first_tokens: Ints
    last_tokens: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def tokens(self) -> Ints:
        """Of each unit; what stands between units counts for the runs that hold it."""
        counts: Ints = self.last_tokens - self.first_tokens
        return counts

    @classmethod
    def of(cls, ruler: Ruler, marked: Iterable[Marked]) -> Units:
        table = np.asarray([(start, end, int(before)) for start, end, before in marked], dtype=np.int64).reshape(-1, 3)
        starts, ends, borders = np.ascontiguousarray(table.T)
        return cls(starts, ends, borders, ruler.rank(starts), ruler.rank(ends))


def check_granularity(name: str) -> Border:
    if name not in GRANULARITIES:
        raise SplitterError(f"unknown granularity {name!r}: choose from {', '.join(GRANULARITIES)}")
    return GRANULARITIES[name]


def prose_units(text: str, start: int, end: int) -> Iterator[Marked]:
    """Sentences, with what is too little to stand alone joined to what it belongs to."""
    return _joined(text, _sentences(text, start, end))


def coarser(ruler: Ruler, marked: Iterable[Marked], border: Border, most: int) -> Iterator[Marked]:
    """Runs of units between borders of this strength; a run above `most` tokens breaks at the next weaker ones."""
    if border == Border.SENTENCE:
        yield from marked
        return
    run: list[Marked] = []
    for unit in marked:
        if run and unit[2] >= border:
            yield from _whole_or_weaker(ruler, run, border, most)
            run = []
        run.append(unit)
    if run:
        yield from _whole_or_weaker(ruler, run, border, most)


def _whole_or_weaker(ruler: Ruler, run: list[Marked], border: Border, most: int) -> Iterator[Marked]:
    if ruler.between(run[0][0], run[-1][1]) <= most:
        yield run[0][0], run[-1][1], run[0][2]
    else:
        # The first unit keeps what stands before it, whatever stands between the others.
        yield from coarser(ruler, run, Border(border - 1), most)


def _sentences(text: str, start: int, end: int) -> Iterator[Marked]:
    for first, last, before in _stretches(text, start, end):
        for sentence_start, sentence_end in sentence_spans(text, first, last):
            yield sentence_start, sentence_end, before
            before = Border.SENTENCE


def _stretches(text: str, start: int, end: int) -> Iterator[Marked]:
    """Lines as their author meant them: what a program wrapped is put together again."""
    stretch: Marked | None = None
    last_line = (start, start)
    for found in LINE.finditer(text, start, end):
        before = _before(text, last_line[1], found.start()) if stretch else Border.PARAGRAPH
        if stretch and before == Border.LINE and _is_wrapped(text, last_line, found.span()):
            stretch = (stretch[0], found.end(), stretch[2])
        else:
            if stretch:
                yield stretch
            stretch = (*found.span(), before)
        last_line = found.span()
    if stretch:
        yield stretch


def _before(text: str, start: int, end: int) -> Border:
    if GAP_OF_A_PASSAGE.search(text, start, end):
        return Border.SECTION
    return Border.PARAGRAPH if BLANK_LINE.search(text, start, end) else Border.LINE


def _is_wrapped(text: str, above: Offsets, below: Offsets) -> bool:
    return (
        above[1] - above[0] in WRAPPED
        and not FULL_STOP.search(text[max(above[0], above[1] - 8) : above[1]].rstrip())
        and not BULLET.match(text, *below)
    )


def _joined(text: str, marked: Iterable[Marked]) -> Iterator[Marked]:
    """The number of a list item goes to what follows, and closing brackets to what they close."""
    held: Marked | None = None  # complete, but what follows may belong to it
    for start, end, before in marked:
        if held is None:
            held = (start, end, before)
        elif _is_opening(text, held, before) or _is_closing(text, start, end, before):
            held = (held[0], end, held[2])
        else:
            yield held
            held = (start, end, before)
    if held:
        yield held


def _is_opening(text: str, held: Marked, after: Border) -> bool:
    """Too little to say anything, with something behind it: a bullet, a number, an opening bracket."""
    start, end, _ = held
    if after >= Border.SECTION or end - start > 64:
        return False
    said = " ".join(text[start:end].split())  # whatever ends its lines
    return len(said) < 12 and OPENING.fullmatch(said) is not None


def _is_closing(text: str, start: int, end: int, before: Border) -> bool:
    return before <= Border.LINE and not any(map(str.isalnum, text[start:end]))
