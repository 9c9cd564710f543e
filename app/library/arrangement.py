"""Gives documents their places in the order of a collection, as they come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from app.library import Library
from app.library.catalog.records import Collection, Vectors
from app.library.order import SHORT, Neighbour, Standing, behind, between, opening_chunks
from app.prompt import PromptTemplate
from ragcache.types import Chunk

AHEAD = 7  # places that are kept for those that may follow: with more, a text that many are like has none left soon
NEAREST = 16  # chunks of the collection that a document is compared with
OWN = 512  # and so many more at most: its own may be there already, and are what it is likest to


Likely = Sequence[tuple[int, float]]  # what a document is like, the likest first, and how like


class Arrangement(ABC):
    """The documents of a batch stand behind each other in a chain of near texts, or behind a nearer one that was there
    before. A short one stands behind short ones alone, for what it would open with is as much as itself.
    """

    def __init__(self) -> None:
        self._directions: list[Vectors] = []  # of the batch's documents
        self._lengths: list[int] = []  # in chunks
        self._likely: list[Likely] = []
        self._known = frozenset[int]()  # documents that are there in older versions, which go with this batch
        self._left = 0  # documents of it that have no place yet
        self._last: tuple[Neighbour, Vectors] | None = None  # of the batch

    @abstractmethod
    def likely(self, directions: Vectors, longest: int) -> list[Likely]:
        """For each of them what stands already. `longest`: chunks of a document. directions [documents, dimension]"""

    @abstractmethod
    def neighbours(self, likely: Sequence[int], most: int | None) -> Iterable[tuple[int, Neighbour]]:
        """Of these the documents that have a place, and at most so many chunks, in their order."""

    @abstractmethod
    def place_behind(self, neighbour: Neighbour | None, more: int) -> float:
        """A free place right behind it, or behind all, with room for so many there."""

    def begin(self, vectors: Iterable[Vectors], known: Iterable[int] = ()) -> list[int]:
        """A batch of documents, each by the vectors of its chunks -> the order to add them in. `known`: ids of those
        that are newer versions.
        """
        sizes = [(len(one), mean_direction(one)) for one in vectors]
        self._last, self._left, self._known = None, len(sizes), frozenset(known)
        self._lengths, self._directions = [length for length, _ in sizes], [direction for _, direction in sizes]
        if not any(self._lengths):
            return list(range(len(sizes)))
        self._likely = self.likely(np.stack(self._directions), max(self._lengths))
        first = [likely[0][1] if likely else -np.inf for likely in self._likely]  # where it is nearest to what stands
        return chain(np.stack(self._directions), int(np.argmax(first)))

    def standing(self, place: int) -> Placed:
        """Of this document of the batch, the next one."""
        self._left -= 1
        if not self._lengths[place]:
            return self.end()
        most = SHORT if self._lengths[place] <= SHORT else None
        found = self._nearest(place, most)
        if self._last is not None and (most is None or self._last[0].chunks <= most):
            last, its = self._last
            likeness = float(its @ self._directions[place])
            found = (last, likeness) if found is None or likeness >= found[1] else found
        if found is None:
            return self.end()
        free = self.place_behind(found[0], 1 + min(self._left, AHEAD))
        return Placed(*behind(found[0], self._lengths[place], free))

    def end(self) -> Placed:
        """Behind all, and computed behind nothing."""
        return Placed(Standing(self.place_behind(None, 1)))

    def added(self, place: int, document_id: int, placed: Placed) -> None:
        """It is there now."""
        if self._lengths[place]:
            neighbour = Neighbour(document_id, self._lengths[place], placed.standing, placed.lengths)
            self._last = neighbour, self._directions[place]

    def _nearest(self, place: int, most: int | None) -> tuple[Neighbour, float] | None:
        """Not behind what goes, nor behind what was computed behind that."""
        likeness = dict(self._likely[place])
        for one, neighbour in self.neighbours(list(likeness), most):
            if self._known.isdisjoint((neighbour.id, *neighbour.standing.behind)):
                return neighbour, likeness[one]
        return None


@dataclass(frozen=True)
class Placed:
    standing: Standing
    lengths: tuple[int, ...] = ()  # in chunks, of what it is computed behind


class CollectionArrangement(Arrangement):
    """Of a collection whose ingest lock is held."""

    def __init__(self, library: Library, collection: Collection):
        super().__init__()
        self._library, self._collection = library, collection
        self._order = library.catalog.order

    def likely(self, directions: Vectors, longest: int) -> list[Likely]:
        with self._library.searching(self._collection) as searcher:
            searcher.catch_up()
            found = zip(*searcher.vectors.search(directions, NEAREST + min(longest, OWN)), strict=True)
        return [
            [(int(one), float(score)) for one, score in zip(ids, scores, strict=True) if one >= 0]
            for ids, scores in found
        ]

    def neighbours(self, likely: Sequence[int], most: int | None) -> Iterable[tuple[int, Neighbour]]:
        return self._order.neighbours(self._collection, likely, most)

    def place_behind(self, neighbour: Neighbour | None, more: int) -> float:
        place = self._free(neighbour, more)
        if place is None:
            self._order.spread(self._collection)
            place = self._free(neighbour, more)
        assert place is not None
        return place

    def _free(self, neighbour: Neighbour | None, more: int) -> float | None:
        standing = None if neighbour is None else self._order.standing(neighbour.id)
        if standing is None:  # or it is gone
            return between(self._order.last(self._collection), None)
        return between(standing.place, self._order.after(self._collection, standing.place), more)


def chunks_before(library: Library, template: PromptTemplate, standing: Standing | None, count: int) -> list[Chunk]:
    """Those that the first chunk of a document of so many is computed behind, and those that these are, in their
    order.
    """
    if standing is None or not standing.behind:
        return []
    order, run = library.catalog.order, standing.behind[standing.opening :]
    lengths, most = order.lengths(run), opening_chunks(count)
    # One may be longer since it was replaced: it is a run of its own now.
    texts = order.texts(one for one, length in lengths.items() if length <= SHORT)
    opened = [text for one in standing.behind[: standing.opening] for text in order.ending(one, most)]
    there = (*opened[-most:], *(text for one in run for text in texts.get(one, ())))
    # Blank ones are no part of any prompt.
    return [template.chunk(text) for text in there if text.strip()]


def unpacked(packed: Sequence[bytes]) -> Vectors:
    """As the catalog keeps them -> [n, dimension]."""
    return np.array([np.frombuffer(one, dtype="<f4") for one in packed], dtype=np.float32)


def chain(vectors: Vectors, first: int = 0) -> list[int]:
    """All of them, each behind that which it is nearest to of those that were left. vectors [n, dimension], normed"""
    order, left = [first], np.ones(len(vectors), dtype=bool)
    left[first] = False
    while left.any():
        near = np.where(left, vectors @ vectors[order[-1]], -np.inf)
        order.append(int(np.argmax(near)))
        left[order[-1]] = False
    return order


def mean_direction(vectors: Vectors) -> Vectors:
    """Of a document, by its chunks' [n, dimension] -> [dimension], of length 1 where they have a direction."""
    mean = np.asarray(vectors, dtype=np.float32).sum(axis=0) / max(1, len(vectors))
    length = float(np.linalg.norm(mean))
    return np.asarray(mean / length if length else mean, dtype=np.float32)
