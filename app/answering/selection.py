"""From ranked hits to the chunks of a prompt: what says the same counts once, a number or a budget of tokens ends it,
and neighbours join where there is room.

The best chunk is always taken. With a budget, each further one is taken that still fits, down the ranking: to the end
of `top_k` where that is given too, else until two have not fitted. Going on behind the first of these finds more of the
answers, behind the second no more (docs/log.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from app.answering import Asked
from app.library.catalog.records import Found
from app.settings import Settings
from retriever.words import normal_form

MISFITS = 2
# Copies of a text are found together and count once: so many times the chunks that are wanted are looked at, and again
# so many times more while that is not enough, up to the most. Anybody may put any number of copies into a collection.
COPIES, DEEPER, MOST = 2, 8, 4096
_SET = re.compile(r"^\s|\S(?:\t|\s\s)|^[-*+#|>]|^\d+[.)]")  # what is set by blanks or lines: code, tables, lists
BY_LINES = ("code", "table", "items")  # kinds of documents whose lines are no matter of layout
Place = tuple[int, int]  # document, ordinal


@dataclass(frozen=True)
class Limits:
    """How much is selected. Neighbours come in addition; without a budget each hit brings all of its own."""

    chunks: int | None  # None: the budget alone decides
    tokens: int = 0  # 0: no budget
    neighbours: int = 0  # on each side of a hit
    typical: int = 128  # tokens of a chunk, by which a search goes as deep as it must
    joins: int = 0  # tokens that a prompt puts around each chunk

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

    def depths(self, live: Callable[[], int]) -> Iterator[int]:
        """How many hits to look at in a collection of `live` chunks: each time more, while it is not enough. Mostly the
        first are enough, and the collection is not asked.
        """
        depth = COPIES * self.expected
        if depth > MOST:
            depth = max(1, min(depth, live()))
        yield depth
        most = max(depth, min(max(MOST, 2 * depth), live()))
        while depth < most:
            depth = min(DEEPER * depth, most)
            yield depth

    def size(self, one: Found) -> int:
        return one.chunk.tokens + self.joins

    def full(self, tokens: int) -> bool:
        return bool(self.tokens) and tokens > self.tokens


@dataclass(frozen=True)
class Selection:
    chosen: tuple[Found, ...]  # best first
    ended: bool  # more hits would change nothing
    notes: tuple[str, ...] = ()


def canonical(text: str, kind: str) -> str:
    """The same for texts that differ in where their lines end. All else may be what a text is about: a sign (.5 and 5,
    w * h and w - h), case (mW and MW), a comma ("No, officers may enter"), a word more or less; and in code, in lists
    and in tables where a line ends (a comment, a row) and how far it is from the margin.
    """
    lines = normal_form("NFC", text).splitlines()
    if kind not in BY_LINES:
        lines = [line.rstrip() for line in lines]
        if not any(map(_SET.search, lines)):
            return " ".join(filter(None, lines))
    return "\n".join(lines).strip("\n")


def select(ranked: Iterable[Found], limits: Limits) -> Selection:
    """`ranked`: best first; it is read no further than is needed. Of those that say the same the best that fits is
    taken."""
    taken: dict[str, Found] = {}  # by what they say
    left: set[str] = set()  # what did not fit; a copy in fewer tokens still may
    used = passed = 0
    ended = False
    for one in ranked:
        said, size = canonical(one.chunk.text, one.document.kind), limits.size(one)
        if said in taken:
            continue
        if taken and limits.full(used + size):
            left.add(said)
        else:
            left.discard(said)
            taken[said] = one
            used += size
            passed = len(left)
        ended = len(taken) + len(left) == limits.chunks or (limits.chunks is None and len(left) == MISFITS)
        if ended:
            break
    # Without a number, what ranks behind the last one was not asked for.
    missed = len(left) if limits.chunks else passed
    notes = _notes(limits.tokens, used, missed, len(taken) + missed)
    return Selection(tuple(taken.values()), ended, tuple(notes))


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

    A side ends where a chunk does not fit, or its document was replaced since the hit was read: what stands there now
    is no neighbour of it. What says the same as a chunk that is chosen already is left out.
    """
    by_place: Mapping[Place, Found] = {_place(one): one for one in there}
    taken = {_place(one) for one in chosen}
    said = {canonical(one.chunk.text, one.document.kind) for one in chosen}
    used = sum(map(limits.size, chosen))
    joined: list[tuple[Found, Found]] = []
    for hit in chosen:
        for side in _sides(hit, limits.neighbours):
            for place in side:
                if place in taken:
                    continue
                found = by_place.get(place)
                if found is None or found.document != hit.document:
                    break
                text = canonical(found.chunk.text, found.document.kind)
                if text not in said:
                    if limits.full(used + limits.size(found)):
                        break
                    said.add(text)
                    joined.append((found, hit))
                    used += limits.size(found)
                taken.add(place)
    return joined


def _place(one: Found) -> Place:
    return one.chunk.document_id, one.chunk.ordinal


def _sides(hit: Found, neighbours: int) -> tuple[list[Place], list[Place]]:
    """Before it and behind it, the nearest first."""
    document, ordinal = _place(hit)
    before = [(document, place) for place in range(ordinal - 1, max(-1, ordinal - 1 - neighbours), -1)]
    return before, [(document, place) for place in range(ordinal + 1, ordinal + 1 + neighbours)]
