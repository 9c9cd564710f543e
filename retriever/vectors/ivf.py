"""Lists around trained centres (IVF), vectors in half precision: for many. A search reads the lists nearest to it.

Half precision halves memory and time; it changes a cosine by about 0.00002, so it costs no recall.
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
    Found,
    Removable,
    found,
    known,
    load_faiss,
    selector,
    short,
)

LISTS_PER_ROOT = 4  # lists for each of the square root of the vectors
LEAST_PER_LIST = 8  # vectors, where they are few
TRAINING_PER_LIST = 48
TRAINING_ROUNDS = 8
LEAST_PART = 32  # one of so many lists is read at least
LEAST_VECTORS = 32768  # and lists of so many vectors: that takes a millisecond or two
GROWTH = 4  # built anew when it holds so many times the vectors it was trained for
SEED = 1234
HALF = 2  # bytes


class Ivf(Removable):
    name: ClassVar[str] = "ivf"

    @classmethod
    def build(cls, ids: IntArray, vectors: Vectors) -> Self:
        faiss = load_faiss()
        count, dimension = vectors.shape
        lists = max(1, min(int(LISTS_PER_ROOT * count**0.5), count // LEAST_PER_LIST))
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(dimension), dimension, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        index.cp.niter, index.cp.seed, index.cp.min_points_per_centroid = TRAINING_ROUNDS, SEED, 1
        # Drawn here, because FAISS would first copy all of the vectors to draw from them.
        chosen = np.random.default_rng(SEED).permutation(count)[: lists * TRAINING_PER_LIST]
        index.train(vectors[np.sort(chosen)])
        index.set_direct_map_type(faiss.DirectMap.Hashtable)  # finds the vector of an id, to remove or to return it
        structure = cls(index)
        structure.add(ids, vectors)
        return structure

    def __init__(self, index: Any) -> None:
        super().__init__(index, _stored_ids(index))

    @property
    def nbytes(self) -> int:
        return (
            len(self._ids) * (self.dimension * HALF + 2 * ID + ENTRY) + int(self._index.nlist) * self.dimension * FLOAT
        )

    def outgrown(self) -> bool:
        lists = int(self._index.nlist)
        trained_for = max((lists / LISTS_PER_ROOT) ** 2, lists * LEAST_PER_LIST)
        return len(self._ids) > GROWTH * trained_for

    def search(self, queries: Vectors, k: int, allowed: IntArray | None) -> Found:
        if allowed is None:
            result = self._probe(queries, k, None, self._lists())
            wanted, chosen = min(k, len(self._ids)), None
        elif len(allowed) <= EXACT_UP_TO:
            return self._compare(queries, k, known(allowed, self._ids))
        else:
            chosen, wanted = selector(allowed), k
            more = max(1, len(self._ids) // len(allowed))
            result = self._probe(queries, k, chosen, self._lists() * more)
        # Fewer than k is right only where fewer are there at all: look into every list.
        return self._probe(queries, k, chosen, int(self._index.nlist)) if short(result[0], wanted) else result

    def search_parameters(self) -> dict[str, Any]:
        lists = min(self._lists(), int(self._index.nlist))
        return {"params": load_faiss().SearchParametersIVF(nprobe=lists)}

    def _lists(self) -> int:
        """How many to read."""
        lists = int(self._index.nlist)
        return max(lists // LEAST_PART, -(-lists * LEAST_VECTORS // max(len(self._ids), 1)))

    def _probe(self, queries: Vectors, k: int, chosen: Any, lists: int) -> Found:
        limits = {} if chosen is None else {"sel": chosen}
        lists = max(1, min(lists, int(self._index.nlist)))
        parameters = load_faiss().SearchParametersIVF(nprobe=lists, **limits)
        return found(*self._index.search(queries, k, params=parameters))


def _stored_ids(index: Any) -> IntArray:
    faiss = load_faiss()
    lists = faiss.extract_index_ivf(index).invlists
    parts = [
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy()
        for number in range(lists.nlist)
        if lists.list_size(number)
    ]
    return np.sort(np.concatenate(parts)).astype(np.int64) if parts else np.empty(0, np.int64)
