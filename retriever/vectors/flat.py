"""Exact: every vector is compared. The quickest for few, and what the others are measured against."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from retriever.types import IntArray, Vectors
from retriever.vectors.base import EXACT_UP_TO, Found, Removable, found, known, load_faiss, selector


class Flat(Removable):
    name: ClassVar[str] = "flat"

    @classmethod
    def build(cls, ids: IntArray, vectors: Vectors) -> Self:
        faiss = load_faiss()
        structure = cls(faiss.IndexIDMap2(faiss.IndexFlatIP(vectors.shape[1])))
        structure.add(ids, vectors)
        return structure

    def __init__(self, index: Any) -> None:
        faiss = load_faiss()
        super().__init__(index, np.sort(faiss.vector_to_array(index.id_map)))

    def search(self, queries: Vectors, k: int, allowed: IntArray | None) -> Found:
        faiss = load_faiss()
        if allowed is None:
            return found(*self._index.search(queries, k))
        if len(allowed) <= EXACT_UP_TO:
            return self._compare(queries, k, known(allowed, self._ids))
        parameters = faiss.SearchParameters(sel=selector(allowed))
        return found(*self._index.search(queries, k, params=parameters))
