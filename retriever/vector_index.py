"""The vectors of a collection: a FAISS structure that follows a Source, with a copy on the GPU where there is one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from retriever import IntArray, RetrieverError, Vectors
from retriever.derived import DerivedIndex
from retriever.generations import Distrusted, Generations, Manifest
from retriever.source import Source
from retriever.vectors import AUTO, STRUCTURES, check_name, choose
from retriever.vectors.base import MISSING, Flat, Found, Structure, among, found, known, load_faiss

MOST_HITS = 2048  # that FAISS gives on a GPU
COPIED = ("flat", "ivf")  # FAISS has no HNSW on a GPU
Copier = Callable[[Any], Any]  # from an index in memory to one on the GPU
TEMPORARY_BYTES = 64 << 20  # of the GPU's memory, for searches; FAISS's own default is gigabytes
_GPU = threading.RLock()  # FAISS lets one thread at a time use what all copies share, also to let one go
SHRUNK = 2  # a structure for many is kept until so many times fewer remain, so that it does not change to and fro
_CLOSE = 0.01  # of two vectors that differ by half precision alone, in any coordinate
log = logging.getLogger(__name__)


class VectorIndex(DerivedIndex):
    def __init__(
        self,
        dimension: int,
        fingerprint: str,
        folder: Path | None = None,
        structure: str = AUTO,
        copier: Copier | None = None,
    ) -> None:
        """`fingerprint` is the embedder's. Without a folder the index lives in memory and is made again each time.

        `copier` puts an index on the GPU; without one a GPU is used where there is one that FAISS can use.
        """
        generations = None if folder is None else Generations(folder, "vectors", "faiss")
        super().__init__(f"{fingerprint} in {dimension} dimensions", generations)
        self.dimension = dimension
        self._wanted = check_name(structure)
        self._structure = self._empty()
        copier = copier or gpu_copier()
        self._gpu = None if copier is None else GpuCopy(copier)

    @property
    def live(self) -> int:
        return len(self._structure.ids)

    @property
    def nbytes(self) -> int:
        return self._structure.nbytes

    @property
    def structure(self) -> str:
        """Its name: flat, hnsw or ivf."""
        return self._structure.name

    def search(self, vectors: Vectors, k: int, allowed: IntArray | None = None) -> Found:
        """Ids and cosines of the best k for each query, [queries, k], best first.

        Where fewer are there, ids are -1 and scores -inf. `allowed` limits the search to some ids; it then finds k
        where k of them are there.
        """
        if k < 1:
            raise RetrieverError(f"a search for {k} chunks finds nothing: ask for at least 1")
        queries = np.ascontiguousarray(np.atleast_2d(vectors), dtype=np.float32)
        if queries.shape[1] != self.dimension:
            raise RetrieverError(f"a query of {queries.shape[1]} dimensions in an index of {self.dimension}")
        chosen = None if allowed is None else np.unique(np.asarray(allowed, dtype=np.int64))
        with self._lock:
            if not self.live:
                return _nothing(len(queries), k)
            if self._gpu is not None and self._gpu.serves(self._structure, k, chosen):
                try:
                    return self._gpu.search(self._structure, queries, k)
                except RuntimeError as error:
                    self._leave_gpu(error)
            return self._structure.search(queries, k, chosen)

    def vectors(self, ids: IntArray) -> Vectors:
        """float32 [ids, dimension], in the order asked for; zeros for a chunk that is not there."""
        ids = np.asarray(ids, dtype=np.int64)
        rows = np.zeros((len(ids), self.dimension), np.float32)
        with self._lock:
            there = among(ids, self._structure.ids)
            if there.any():
                rows[there] = self._structure.vectors(ids[there])
        return rows

    def check_integrity(self) -> None:
        with self._lock:
            ids = self._structure.ids
            assert (np.diff(ids) > 0).all(), "ids ascend and are distinct"
            assert not len(ids) or (ids[0] > 0 and ids[-1] <= self.position.high), (ids, self.position)
            assert len(ids) == self.position.live, (len(ids), self.position)

    def _empty(self) -> Structure:
        # Training needs vectors, so every index starts flat.
        return Flat.build(np.empty(0, np.int64), np.empty((0, self.dimension), np.float32))

    def _add(self, ids: IntArray, texts: list[str], vectors: Vectors) -> int:
        there = self._structure.ids
        fresh = ids > (int(there[-1]) if len(there) else 0)
        if not fresh.all():
            fresh = np.isin(ids, there, assume_unique=True, invert=True)
        if fresh.any():
            new = np.ascontiguousarray(vectors[fresh], dtype=np.float32)
            self._structure.add(ids[fresh], new)
            if self._gpu is not None:
                try:
                    self._gpu.add(ids[fresh], new)
                except RuntimeError as error:
                    self._leave_gpu(error)
        return 0

    def _remove(self, ids: IntArray) -> None:
        there = known(np.unique(ids), self._structure.ids)
        if len(there):
            self._structure.remove(there)
            self._forget_copy()

    def _clear(self) -> None:
        self._structure = self._empty()
        self._forget_copy()

    def _settle(self) -> int:
        name = self._name_for(self.live)
        if name == self._structure.name and not self._structure.outgrown():
            return 0
        ids = self._structure.ids
        self._structure = STRUCTURES[name].build(ids, self._structure.vectors(ids))
        self._forget_copy()
        return self.live

    def _purge(self) -> None:
        """Removed vectors are gone from all structures. IVF keeps the centres that it was trained to."""

    def _name_for(self, live: int) -> str:
        """It grows at once, and shrinks when half as many would still do."""
        if not live:
            return "flat"
        order = list(STRUCTURES)
        least, most = (order.index(choose(self._wanted, count)) for count in (live, SHRUNK * live))
        return order[min(max(order.index(self._structure.name), least), most)]

    def _agrees(self, source: Source) -> bool:
        """Whether the source's vector of the newest chunk is ours; a chunk that it has retired since tells nothing."""
        if not self.live:
            return True
        newest = int(self._structure.ids[-1])
        for ids, _, vectors in source.added(newest - 1, 1):
            ours = self._structure.vectors(np.array([newest]))
            return int(ids[0]) != newest or bool(np.abs(vectors - ours).max() < _CLOSE)
        return True

    def _write(self, path: Path) -> None:
        self._structure.write(path)

    def _read(self, path: Path, manifest: Manifest) -> None:
        try:
            structure = STRUCTURES[check_name(manifest.details["structure"])].read(path)
        except (KeyError, RetrieverError, RuntimeError, AttributeError) as error:
            raise Distrusted(f"FAISS cannot read {path.name}: {error}") from error
        if structure.dimension != self.dimension or len(structure.ids) != manifest.live:
            raise Distrusted(f"{path.name} holds {len(structure.ids)} vectors of {structure.dimension} dimensions")
        self._structure = structure
        self._forget_copy()

    def _forget_copy(self) -> None:
        if self._gpu is not None:
            self._gpu.forget()

    def _leave_gpu(self, error: RuntimeError) -> None:
        """It fails mostly for want of memory, which others have taken for long."""
        log.warning("a vector index is searched without the GPU from now on: %s", str(error).partition("\n")[0])
        self._gpu = None

    def _details(self) -> Mapping[str, Any]:
        return {"structure": self._structure.name}


def _nothing(queries: int, k: int) -> Found:
    return np.full((queries, k), MISSING, np.int64), np.full((queries, k), -np.inf, np.float32)


def gpu_copier() -> Copier | None:
    """None where FAISS sees no GPU, or is the build without."""
    faiss = load_faiss()
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        return None
    return lambda index: faiss.index_cpu_to_gpu(_gpu_resources(), 0, index)


@lru_cache(maxsize=1)
def _gpu_resources() -> Any:
    """Of the whole process; asked for with `_GPU` alone."""
    resources = load_faiss().StandardGpuResources()
    resources.setTempMemory(TEMPORARY_BYTES)
    return resources


class GpuCopy:
    """Of a structure, for searches among all of its vectors. The structure stays the truth: it is what is saved, and
    what answers a search that is limited to some ids, which FAISS cannot do on a GPU.

    Made when it is first searched; additions reach it, and after a removal it is made again. Where the GPU fails, FAISS
    raises RuntimeError.
    """

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._copy: Any = None

    def __del__(self) -> None:
        self.forget()

    def serves(self, structure: Structure, k: int, allowed: IntArray | None) -> bool:
        return allowed is None and k <= MOST_HITS and structure.name in COPIED

    def search(self, structure: Structure, queries: Vectors, k: int) -> Found:
        with _GPU:
            if self._copy is None:
                self._copy = self._copier(structure.index)
            return found(*self._copy.search(queries, k, **structure.search_parameters()))

    def add(self, ids: IntArray, vectors: Vectors) -> None:
        if self._copy is not None:  # whoever has none waits for no other one's
            with _GPU:
                self._copy.add_with_ids(vectors, ids)

    def forget(self) -> None:
        if self._copy is not None:
            with _GPU:
                self._copy = None
