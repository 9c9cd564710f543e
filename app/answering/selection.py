"""From ranked hits to the chunks of a prompt: what says the same counts once, a number or a budget of tokens ends it,
and neighbours join where there is room.

The best chunk is always taken. With a budget, each further one is taken that still fits, down the ranking: to the end
of `top_k` where that is given too, else until two have not fitted. Going on behind the first of these finds more of the
answers, behind the second no more (docs/log.md).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from app.answering import Asked
from app.library.catalog.records import Found, StoredChunk
from app.settings import Settings
from retriever.words import words

MISFITS = 2
# Of two texts that say the same, the longer has at most a tenth more: a header line, or the rest of a cut sentence.
SAME = 0.9
# What only dresses a text. All other signs tell something, as digits do: -5 is not 5, nor C# C, nor < >.
_DRESS = ".,;:'\"“”‘’„«»…()[]{}*_`。、，；：「」『』（）"
_TELLS = re.compile(rf"\d|(?<=\w)#|(?<!\w)[!?]|[^\w\s!?#|>‐‑–—\-{re.escape(_DRESS)}]")
Place = tuple[int, int]  # document, ordinal


@dataclass(frozen=True)
class Limits:
    """How much is selected. Neighbours come in addition; without a budget each hit brings all of its own."""

    chunks: int | None  # None: the budget alone decides
    tokens: int = 0  # 0: no budget
    neighbours: int = 0  # on each side of a hit
    typical: int = 128  # tokens of a chunk, by which a search goes as deep as it must

    @classmethod
    def of(cls, asked: Asked, settings: Settings) -> Self:
        tokens = settings.top_tokens if asked.top_tokens is None else asked.top_tokens
        given = asked.top_k or (settings.top_k if not tokens or "top_k" in settings.model_fields_set else None)
        neighbours = settings.neighbours if asked.neighbours is None else asked.neighbours
        return cls(given, tokens, neighbours, max(1, settings.chunk_tokens // 2))

    @property
    def expected(self) -> int:
        """How many hits this takes, about."""
        return self.chunks or self.tokens // self.typical + MISFITS


@dataclass(frozen=True)
class Selection:
    chosen: tuple[Found, ...]  # best first
    ended: bool  # more hits would change nothing
    notes: tuple[str, ...] = ()


class Distinct:
    """The texts so far. One that says the same in another dress is none of its own: its words, folded, are a run of
    those of a known one, or the other way round, and all that has a digit or a sign is the same.

    A single word that differs amid two texts may be all that they are about, so however much is alike is no measure.
    """

    def __init__(self) -> None:
        self._hashes: set[str] = set()
        self._said: dict[tuple[str, ...], list[tuple[int, str]]] = {}  # by what tells: number of words, and the words

    def add(self, chunk: StoredChunk) -> bool:
        """Whether it is new. Each text is folded once, and compared only with those of the same numbers."""
        if chunk.token_hash in self._hashes:
            return False
        self._hashes.add(chunk.token_hash)
        folded = words(chunk.text)
        said = (len(folded), f" {' '.join(folded)} ")
        known = self._said.setdefault(_telling(chunk.text), [])
        if folded and any(_same(said, other) for other in known):
            return False
        known.append(said)
        return True


def _same(one: tuple[int, str], other: tuple[int, str]) -> bool:
    (less, short), (more, long) = sorted((one, other))
    return less >= SAME * more and short in long


def _telling(text: str) -> tuple[str, ...]:
    """The pieces between blanks that hold a digit or a sign, in order."""
    pieces = (piece.strip(_DRESS) for piece in unicodedata.normalize("NFC", text).casefold().split())
    return tuple(piece for piece in pieces if _TELLS.search(piece))


def select(ranked: Iterable[Found], limits: Limits) -> Selection:
    """`ranked`: best first; it is read no further than is needed. Of those that say the same the best is kept."""
    distinct, chosen = Distinct(), list[Found]()
    used = looked = misfits = passed = 0
    ended = False
    for one in ranked:
        if not distinct.add(one.chunk):
            continue
        looked += 1
        if chosen and limits.tokens and used + one.chunk.tokens > limits.tokens:
            misfits += 1
        else:
            chosen.append(one)
            used += one.chunk.tokens
            passed = misfits
        ended = looked == limits.chunks or (limits.chunks is None and misfits == MISFITS)
        if ended:
            break
    # Without a number, what ranks behind the last one was not asked for.
    left, of = (misfits, looked) if limits.chunks else (passed, len(chosen) + passed)
    return Selection(tuple(chosen), ended, tuple(_notes(limits.tokens, used, left, of)))


def _notes(budget: int, used: int, left: int, of: int) -> Iterator[str]:
    if budget and used > budget:
        yield f"the best chunk alone takes {used} tokens, more than the budget of {budget}"
    if left:
        yield f"{left} of {of} chunks left out: the budget of {budget} tokens was full"


def places_beside(chosen: Sequence[Found], neighbours: int) -> list[Place]:
    """Where neighbours of hits stand, if their documents reach so far."""
    hits = {_place(one) for one in chosen}
    return sorted({place for one in chosen for side in _sides(one, neighbours) for place in side} - hits)


def beside(chosen: Sequence[Found], there: Iterable[Found], limits: Limits) -> list[tuple[Found, Found]]:
    """The neighbours that join, each with its hit: those of the best hit first, on each side the nearest first.

    A side ends where a chunk does not fit. What says the same as a chunk that is chosen already is left out.
    """
    by_place: Mapping[Place, Found] = {_place(one): one for one in there}
    distinct, taken = Distinct(), {_place(one) for one in chosen}
    for one in chosen:
        distinct.add(one.chunk)
    used = sum(one.chunk.tokens for one in chosen)
    joined: list[tuple[Found, Found]] = []
    for hit in chosen:
        for side in _sides(hit, limits.neighbours):
            for place in side:
                if place in taken:
                    continue
                found = by_place.get(place)
                if found is None or (limits.tokens and used + found.chunk.tokens > limits.tokens):
                    break
                taken.add(place)
                if distinct.add(found.chunk):
                    joined.append((found, hit))
                    used += found.chunk.tokens
    return joined


def _place(one: Found) -> Place:
    return one.chunk.document_id, one.chunk.ordinal


def _sides(hit: Found, neighbours: int) -> tuple[list[Place], list[Place]]:
    """Before it and behind it, the nearest first."""
    document, ordinal = _place(hit)
    before = [(document, place) for place in range(ordinal - 1, max(-1, ordinal - 1 - neighbours), -1)]
    return before, [(document, place) for place in range(ordinal + 1, ordinal + 1 + neighbours)]
