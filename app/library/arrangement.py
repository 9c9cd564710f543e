"""Gives documents their places in the order of a collection, as they come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import numpy as np

from app.library import Library
from app.library.catalog.records import Collection as CollectionRecord
from app.library.catalog.records import Vectors
from app.library.order import OPENING, SHORT, Neighbour, Standing, behind, between
from app.prompt import PromptTemplate
from ragcache.types import Chunk

NEAREST = 16  # chunks of the collection that a document is compared with


class Arrangement(ABC):
    """The documents of a batch stand behind each other in a chain of near texts, or behind a nearer one that was there
    before.
    """

    def __init__(self) -> None:
        self._last: tuple[Neighbour, Vectors] | None = None  # of this batch
        self._lengths: tuple[int, ...] = ()
        self._batch = set[int]()  # documents of it that are in

    @abstractmethod
    def nearest(self, direction: Vectors, left_out: Collection[int]) -> tuple[Neighbour, float] | None:
        """A short document that has a place, and how like it is; none of these, nor what is computed behind them."""

    @abstractmethod
    def place_behind(self, neighbour: Neighbour | None) -> float:
        """A free place right behind it, or behind all."""

    def begin(self, vectors: Sequence[Vectors]) -> list[int]:
        """A batch of documents, each by the vectors of its chunks -> the order to add them in."""
        self._last = None
        self._batch.clear()
        directions = [mean_direction(one) for one in vectors]
        found = [self.nearest(one, ()) for one in directions]
        likeness = [-np.inf if one is None else one[1] for one in found]  # to what stands already: there it begins
        return chain(np.stack(directions), int(np.argmax(likeness))) if directions else []

    def standing(self, vectors: Vectors, known: int | None = None) -> Standing:
        """Of the next one; `known`: its id, where it is a newer version."""
        self._lengths = ()
        if len(vectors) > SHORT or not len(vectors):
            return self.end()
        direction = mean_direction(vectors)
        found = self.nearest(direction, (*(() if known is None else (known,)), *self._batch))
        if self._last is not None:
            last, its = self._last
            likeness = float(its @ direction)
            found = (last, likeness) if found is None or likeness >= found[1] else found
        if found is None:
            return self.end()
        standing, self._lengths = behind(found[0], len(vectors), self.place_behind(found[0]))
        return standing

    def end(self) -> Standing:
        """Behind all, and computed behind nothing."""
        return Standing(self.place_behind(None))

    def added(self, document_id: int, vectors: Vectors, standing: Standing) -> None:
        """It is there now."""
        if 0 < len(vectors) <= SHORT:
            self._batch.add(document_id)
            self._last = Neighbour(document_id, len(vectors), standing, self._lengths), mean_direction(vectors)


class CollectionArrangement(Arrangement):
    """Of a collection whose ingest lock is held."""

    def __init__(self, library: Library, collection: CollectionRecord):
        super().__init__()
        self._library, self._collection = library, collection
        self._order = library.catalog.order

    def begin(self, vectors: Sequence[Vectors]) -> list[int]:
        self._library.searcher(self._collection).catch_up()
        return super().begin(vectors)

    def nearest(self, direction: Vectors, left_out: Collection[int]) -> tuple[Neighbour, float] | None:
        (ids,), (scores,) = self._library.searcher(self._collection).vectors.search(direction, NEAREST)
        likeness = {int(one): float(score) for one, score in zip(ids, scores, strict=True) if one >= 0}
        for chunk, neighbour in self._order.neighbours(self._collection, list(likeness), SHORT):
            if set(left_out).isdisjoint((neighbour.id, *neighbour.standing.behind)):
                return neighbour, likeness[chunk]
        return None

    def place_behind(self, neighbour: Neighbour | None) -> float:
        place = self._free(neighbour)
        if place is None:
            self._order.spread(self._collection)
            place = self._free(neighbour)
        assert place is not None
        return place

    def _free(self, neighbour: Neighbour | None) -> float | None:
        standing = None if neighbour is None else self._order.standing(neighbour.id)
        if standing is None:  # or it is gone
            return between(self._order.last(self._collection), None)
        return between(standing.place, self._order.after(self._collection, standing.place))


def chunks_before(library: Library, template: PromptTemplate, standing: Standing | None) -> list[Chunk]:
    """Those that a document's first chunk is computed behind, and those that these are, in their order."""
    if standing is None or not standing.behind:
        return []
    texts = library.catalog.order.texts(standing.behind)
    opened = [text for one in standing.behind[: standing.opening] for text in texts.get(one, ())]
    run = [text for one in standing.behind[standing.opening :] for text in texts.get(one, ())]
    # Blank ones are no part of any prompt.
    return [template.chunk(text) for text in (*opened[-OPENING:], *run) if text.strip()]


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
    mean = np.asarray(vectors, dtype=np.float32).mean(axis=0)
    length = float(np.linalg.norm(mean))
    return np.asarray(mean / length if length else mean, dtype=np.float32)
