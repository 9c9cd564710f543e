"""All passages of a dataset as one collection of short documents, of which each question retrieves its own.

They stand in the order that an ingest gives them, batch by batch, and are computed behind what it computes them behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.ingestion.writer import TOGETHER
from app.library.arrangement import Arrangement, Likely
from app.library.order import OPENING, Neighbour, Standing, between
from retriever import Vectors
from splitter.base import Embed, Splitter


class PoolArrangement(Arrangement):
    """Of documents of one chunk each, by their number."""

    def __init__(self, vectors: Vectors):
        """[documents, dimension], of length 1."""
        super().__init__()
        self._vectors = vectors
        self.standings: dict[int, Standing] = {}
        for first in range(0, len(vectors), TOGETHER):
            batch = range(first, min(first + TOGETHER, len(vectors)))
            for place in self.begin([vectors[one : one + 1] for one in batch]):
                placed = self.standing(place)
                self.standings[batch[place]] = placed.standing
                self.added(place, batch[place], placed)

    @property
    def places(self) -> list[float]:
        return [self.standings[one].place for one in range(len(self.standings))]

    def likely(self, directions: Vectors, longest: int) -> list[Likely]:
        there = list(self.standings)
        likeness = directions @ self._vectors[there].T  # [directions, documents]
        best = np.argsort(-likeness, axis=1, kind="stable")[:, :1]
        return [
            [(there[one], float(row[one])) for one in own] for row, own in zip(likeness, best.tolist(), strict=True)
        ]

    def neighbours(self, likely: Sequence[int], most: int | None) -> Iterable[tuple[int, Neighbour]]:
        for one in likely:
            standing = self.standings[one]
            yield one, Neighbour(one, 1, standing, (1,) * len(standing.behind))

    def place_behind(self, neighbour: Neighbour | None, more: int) -> float:
        place = self._free(neighbour, more)
        if place is None:
            order = sorted(self.standings, key=lambda one: self.standings[one].place)
            for number, one in enumerate(order):
                self.standings[one] = replace(self.standings[one], place=float(number))
            place = self._free(neighbour, more)
        assert place is not None
        return place

    def _free(self, neighbour: Neighbour | None, more: int) -> float | None:
        places = [one.place for one in self.standings.values()]
        if neighbour is None:
            return between(max(places, default=None), None)
        before = self.standings[neighbour.id].place
        return between(before, min((one for one in places if one > before), default=None), more)

    def runs(self, wanted: Iterable[int]) -> list[tuple[int, ...]]:
        """What is computed for these documents: each run as far as it is needed, and none that another goes on."""
        runs = {self._run(one) for one in wanted}
        beginnings = {run[:end] for run in runs for end in range(1, len(run))}
        return sorted(runs - beginnings)

    def _run(self, document: int) -> tuple[int, ...]:
        standing = self.standings[document]
        opened = standing.behind[: standing.opening][-OPENING:]
        return (*opened, *standing.behind[standing.opening :], document)


@dataclass(frozen=True)
class Pool:
    texts: tuple[str, ...]
    vectors: Vectors  # [documents, dimension]
    arrangement: PoolArrangement

    @classmethod
    def of(cls, passages: Iterable[str], splitter: Splitter, embed: Embed, first: bool) -> Pool:
        """`first`: only the first piece of each passage is a document, else every piece."""
        cut = ((passage, splitter.split(passage)[: 1 if first else None]) for passage in passages)
        texts = distinct(passage[piece.start : piece.end] for passage, pieces in cut for piece in pieces)
        vectors = embed(texts)
        return cls(tuple(texts), vectors, PoolArrangement(vectors))

    def ordered(self, best: Sequence[int], order: str, question: str) -> list[int]:
        return ordered(best, order, self.arrangement.places, question)


def ordered(best: Sequence[int], order: str, places: Sequence[float], seed: str) -> list[int]:
    """Documents, best first, as a prompt has them. `places`: of each document in the order of the collection."""
    if order == "collection":
        return sorted(best, key=lambda one: places[one])
    if order == "document":
        return sorted(best)
    if order == "shuffled":
        return [best[one] for one in _permutation(len(best), seed)]
    return list(best)


def _permutation(count: int, seed: str) -> list[int]:
    found: list[int] = np.random.default_rng(list(seed.encode())).permutation(count).tolist()
    return found


def distinct(texts: Iterable[str]) -> list[str]:
    """Without blank ones and copies, as they came."""
    return list(dict.fromkeys(text for text in map(str.strip, texts) if text))
