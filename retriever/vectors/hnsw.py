"""A graph of neighbours (HNSW): quick to search and to extend, without training; what is removed stays in it as dead.

The dead keep their places and their edges. Their ids become MISSING, so that they could be given again, and their
vectors those of neighbours, so that walks lead on and nothing in memory or a file tells of what was deleted.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from retriever import IntArray, Vectors
from retriever.vectors.base import (
    ENTRY,
    EXACT_UP_TO,
    FLOAT,
    ID,
    MISSING,
    Found,
    Structure,
    found,
    known,
    load_faiss,
    selector,
    short,
)

NEIGHBOURS = 16
LINK = 4  # bytes
BUILD_BREADTH = 64
SEARCH_BREADTH = 128
MOST_BREADTH = 2048  # of a search that has to pass over many that are dead or not allowed
DEAD_PART = 4  # built anew when one of so many is dead
RARE = 10  # when fewer than one of so many is allowed, each of them is compared instead


class Hnsw(Structure):
    name: ClassVar[str] = "hnsw"

    @classmethod
    def build(cls, ids: IntArray, vectors: Vectors) -> Self:
        faiss = load_faiss()
        graph = faiss.IndexHNSWFlat(vectors.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = BUILD_BREADTH
        structure = cls(faiss.IndexIDMap2(graph))
        structure.add(ids, vectors)
        return structure

    def __init__(self, index: Any) -> None:
        super().__init__(index)
        self._index_ids(load_faiss().vector_to_array(index.id_map))
        self._erase()  # a version of before has written them

    @property
    def ids(self) -> IntArray:
        return self._ids

    @property
    def nbytes(self) -> int:
        links = 2 * NEIGHBOURS * LINK + 2 * ID  # and where they stand
        return len(self._places) * (self.dimension * FLOAT + links + 3 * ID + ENTRY)

    def add(self, ids: IntArray, vectors: Vectors) -> None:
        super().add(ids, vectors)
        self._index_ids(np.concatenate([self._places, ids]))

    def remove(self, ids: IntArray) -> None:
        places = np.where(np.isin(self._places, ids), MISSING, self._places)
        load_faiss().copy_array_to_vector(places, self._index.id_map)
        self._index.construct_rev_map()
        self._index_ids(places)
        self._erase()  # all of them: a place may hold what a neighbour was that goes now

    def outgrown(self) -> bool:
        return (len(self._places) - len(self._ids)) * DEAD_PART > len(self._places)

    def search(self, queries: Vectors, k: int, allowed: IntArray | None) -> Found:
        if allowed is None:
            if len(self._ids) == len(self._places):
                return self._walk(queries, k, None, SEARCH_BREADTH)
            allowed = self._ids
        if len(allowed) <= EXACT_UP_TO or len(allowed) * RARE < len(self._ids):
            return self._compare(queries, k, known(allowed, self._ids))
        breadth = min(SEARCH_BREADTH * len(self._places) // len(allowed), MOST_BREADTH)
        result = self._walk(queries, k, selector(allowed), breadth)
        # Fewer than k is right only where fewer are there; a walk may also have ended among those not allowed.
        return self._compare(queries, k, known(allowed, self._ids)) if short(result[0], k) else result

    def _walk(self, queries: Vectors, k: int, chosen: Any, breadth: int) -> Found:
        limits = {} if chosen is None else {"sel": chosen}
        parameters = load_faiss().SearchParametersHNSW(efSearch=max(breadth, 2 * k), **limits)
        result = found(*self._index.search(queries, k, params=parameters))
        if chosen is None and short(result[0], min(k, len(self._ids))):
            return self._compare(queries, k, self._ids)  # parts of the graph that no edge reaches
        return result

    def _erase(self) -> None:
        """The vectors of the dead."""
        alive = self._places != MISSING
        dead = np.flatnonzero(~alive)
        if not len(dead):
            return
        faiss = load_faiss()
        graph = faiss.downcast_index(self._index.index)
        storage = faiss.downcast_index(graph.storage)
        vectors = faiss.rev_swig_ptr(storage.get_xb(), storage.ntotal * storage.d).reshape(storage.ntotal, storage.d)
        offsets = faiss.vector_to_array(graph.hnsw.offsets).astype(np.int64)
        edges, nearest = faiss.vector_to_array(graph.hnsw.neighbors), graph.hnsw.nb_neighbors(0)
        near = edges[offsets[dead][:, None] + np.arange(nearest)]
        there = (near >= 0) & alive[near]  # -1 is none
        led = there.any(axis=1)
        vectors[dead[~led]] = 0.0
        vectors[dead[led]] = vectors[near[led, there[led].argmax(axis=1)]]

    def _index_ids(self, places: IntArray) -> None:
        self._places = places  # place in the graph -> id
        self._ids = np.sort(places[places != MISSING])
