"""How far the passages of an answer say what its sentences say, and which one says it best.

Words alone are compared, by their stems: no model is asked, so it takes milliseconds and is the same each time. A
sentence has support where one or two neighbouring sentences of a passage hold most of its telling words. Its numbers
must stand there, its names in the passage, and one of the two must not deny what the other does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from math import log

from app.answering import SupportedSentence
from app.answering.assertions import LONGEST, Assertion, assertion
from app.answering.claims import claims
from retriever.languages import language_of
from retriever.words import words
from splitter.base import Offsets

LEAST = 0.65  # share from which a sentence counts as supported: chosen on half of the labelled sentences
NEAR = 0.4  # what a word counts that stands elsewhere in the passage, or over it
FOREIGN_NUMBER, FOREIGN_NAME, DENIED = 0.3, 0.5, 0.5  # factors of the share, each number and name its own
READ = 20_000  # characters of a passage
MOST_WINDOWS = 1024  # of all passages, which share them
CLAUSES = 24  # of a sentence; what stands behind them is one
FOLLOWED, LIKELY = 128, 8  # windows that one word leads to; those that are looked at closely
_CLAUSES = re.compile(r"[,;:–—，；：、。]\s*|[.!?]\s+| (?:and|but|und|aber|et|mais|y|pero) ")
_LINES = re.compile(r"(?m)^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]|[|\t]")


@dataclass(frozen=True)
class Passage:
    """A text, and what stands over it: its document's title and its headings."""

    text: str
    over: str = ""


def supported(answer: str, passages: Sequence[Passage]) -> tuple[SupportedSentence, ...]:
    """Of each sentence that claims something, in their order. `passages` are in the order of the citations."""
    spans = claims(answer)
    if not spans:
        return ()
    source = _Source(passages)
    return tuple(_judged(answer, span, source) for span in spans)


def _judged(answer: str, span: Offsets, source: _Source) -> SupportedSentence:
    citation, share = source.best(answer[slice(*span)])
    return SupportedSentence(*span, citation if share >= LEAST else None, round(share, 3))


@dataclass(frozen=True)
class _Window:
    citation: int
    text: str
    said: Assertion


class _Source:
    """The passages as windows of a sentence, or of two beside each other, and which of them hold a word."""

    def __init__(self, passages: Sequence[Passage]):
        texts = [one.text[:READ] for one in passages]
        self._languages = [language_of(words(text)) for text in texts]
        self._whole = [
            assertion(f"{one.over}. {text}", language, READ)
            for one, text, language in zip(passages, texts, self._languages, strict=True)
        ]
        self._windows = list(self._made(texts))
        self._holding: dict[str, list[int]] = {}
        for place, window in enumerate(self._windows):
            for stem in window.said.stems | window.said.numbers:
                self._holding.setdefault(stem, []).append(place)

    def best(self, sentence: str) -> tuple[int | None, float]:
        said = {language: assertion(sentence, language) for language in set(self._languages)}
        best: tuple[int | None, float] = (None, 0.0)
        for place in self._likely(said.values()):
            window = self._windows[place]
            language = self._languages[window.citation]
            share = self._share(said[language], window)
            if share > best[1] and _contradicts(sentence, window.text, language):
                share *= DENIED
            if share > best[1]:
                best = (window.citation, share)
        return best

    def _likely(self, said: Iterable[Assertion]) -> list[int]:
        """Windows that hold most of it; of two alike the first."""
        held: dict[int, float] = {}
        for word in frozenset().union(*(one.stems | one.numbers for one in said)):
            for place in self._holding.get(word, ())[:FOLLOWED]:
                held[place] = held.get(place, 0.0) + self._weight(word)
        return sorted(nlargest(LIKELY, held, key=lambda place: (held[place], -place)))

    def _share(self, said: Assertion, window: _Window) -> float:
        there, around = window.said, self._whole[window.citation]
        total = held = 0.0
        for word in sorted(said.stems | said.numbers):
            weight = self._weight(word)
            total += weight
            if word in there.stems or word in there.numbers:
                held += weight
            elif word in around.stems:
                held += NEAR * weight
        share = held / total if total else 0.0
        share *= FOREIGN_NUMBER ** len(said.numbers - there.numbers)
        return share * float(FOREIGN_NAME ** len(said.names - around.stems))

    def _weight(self, word: str) -> float:
        """A word that stands everywhere tells little."""
        return log(2 + len(self._windows) / (1 + len(self._holding.get(word, ()))))

    def _made(self, texts: Sequence[str]) -> Iterator[_Window]:
        of_each = [list(islice(_windows(text), MOST_WINDOWS)) for text in texts]
        shares = _shares([len(one) for one in of_each])
        for citation, (sentences, share) in enumerate(zip(of_each, shares, strict=True)):
            for sentence in sentences[:share]:
                yield _Window(citation, sentence, assertion(sentence, self._languages[citation]))


def _shares(lengths: Sequence[int]) -> list[int]:
    """Of MOST_WINDOWS for each passage: as many as any other, and what short ones leave."""
    shares, left = [0] * len(lengths), MOST_WINDOWS
    for done, place in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        shares[place] = min(lengths[place], left, max(1, left // (len(lengths) - done)))
        left -= shares[place]
    return shares


def _contradicts(sentence: str, source: str, language: str | None) -> bool:
    """Whether a clause of one denies what the nearest clause of the other says."""
    theirs = [assertion(one, language) for one in _clauses(source)]
    for said in (assertion(one, language) for one in _clauses(sentence)):
        shared, differs = max((len(said.stems & one.stems), one.denies != said.denies) for one in theirs)
        if shared and differs:
            return True
    return False


def _clauses(text: str) -> list[str]:
    return _CLAUSES.split(" ".join(text[:LONGEST].split()), CLAUSES)


def _windows(text: str) -> Iterator[str]:
    """Sentences, and pairs of them. Items of lists and rows of tables stand for themselves."""
    from splitter.units import sentence_spans  # it imports NLTK

    spans = list(sentence_spans(text, 0, len(text)))
    if _LINES.search(text):
        yield from (line for start, end in spans for line in text[start:end].splitlines() if line.strip())
        return
    for place, (start, end) in enumerate(spans):
        yield text[start:end]
        if place + 1 < len(spans):
            yield text[start : spans[place + 1][1]]
