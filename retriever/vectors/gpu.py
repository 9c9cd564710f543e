"""A copy of a structure on the GPU, for searches among all of its vectors.

The structure in memory stays the truth: it is what is saved, and what answers a search that is limited to some ids,
which FAISS cannot do on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from retriever.types import IntArray, Vectors
from retriever.vectors.base import Found, Structure, found, load_faiss

MOST_HITS = 2048  # that FAISS gives on a GPU
COPIED = ("flat", "ivf")  # FAISS has no HNSW on a GPU
Copier = Callable[[Any], Any]  # from an index in memory to one on the GPU


def gpu_copier() -> Copier | None:
    """None where FAISS sees no GPU, or is the build without."""
    faiss = load_faiss()
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        return None
    resources = faiss.StandardGpuResources()
    return lambda index: faiss.index_cpu_to_gpu(resources, 0, index)


class GpuCopy:
    """Made when it is first searched; additions reach it, and after a removal it is made again."""

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._copy: Any = None

    def serves(self, structure: Structure, k: int, allowed: IntArray | None) -> bool:
        return allowed is None and k <= MOST_HITS and structure.name in COPIED

    def search(self, structure: Structure, queries: Vectors, k: int) -> Found:
        if self._copy is None:
            self._copy = self._copier(structure.index)
        return found(*self._copy.search(queries, k, **structure.search_parameters()))

    def add(self, ids: IntArray, vectors: Vectors) -> None:
        if self._copy is not None:
            self._copy.add_with_ids(vectors, ids)

    def forget(self) -> None:
        self._copy = None
