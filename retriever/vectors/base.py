"""How vectors lie in memory to be searched: the contract, and its reference, which compares with every vector. A new
structure is a file here and a line in STRUCTURES.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from retriever import IntArray, RetrieverError, Vectors

MISSING = -1  # the id where there is no further hit
EXACT_UP_TO = 4096  # allowed ids: comparing with each of them is quicker than any structure
FLOAT, ID = 4, 8  # bytes
ENTRY = 48  # bytes of a hash table of FAISS that finds the place of an id
_SPARSE = 64  # a bitmap of at most so many bits per chunk
Found = tuple[IntArray, Vectors]  # ids and scores, [queries, k]; MISSING and -inf where there are no more


def load_faiss() -> Any:
    """Imported when a structure is made. Its own type hints know but part of it, so none of them are used."""
    try:
        return import_module("faiss")
    except ImportError as error:
        raise RetrieverError(
            "FAISS is not installed: pip install 'ragcache-kv[cpu]', or 'ragcache-kv[gpu]' for NVIDIA GPUs"
        ) from error


class Structure(ABC):
    """A FAISS index with 64-bit ids. Scores are inner products, so cosines for vectors of length 1.

    Ids are distinct. Callers add only ids that are not there and remove only ids that are.
    """

    name: ClassVar[str]

    def __init__(self, index: Any) -> None:
        self._index = index

    @classmethod
    @abstractmethod
    def build(cls, ids: IntArray, vectors: Vectors) -> Self:
        """May train on the vectors."""

    @property
    @abstractmethod
    def ids(self) -> IntArray:
        """Of the live vectors, ascending."""

    @property
    def dimension(self) -> int:
        return int(self._index.d)

    @abstractmethod
    def remove(self, ids: IntArray) -> None: ...

    @abstractmethod
    def search(self, queries: Vectors, k: int, allowed: IntArray | None) -> Found:
        """The best k of the allowed ids, of all when None. These ascend, and some may not be there.

        It may miss one that lies far from where it looks, but it finds k where k are allowed and there.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """In memory, about."""

    @property
    def index(self) -> Any:
        """FAISS's own."""
        return self._index

    def search_parameters(self) -> dict[str, Any]:
        """What FAISS's own search is called with, for a search among all."""
        return {}

    def add(self, ids: IntArray, vectors: Vectors) -> None:
        self._index.add_with_ids(vectors, ids)

    def vectors(self, ids: IntArray) -> Vectors:
        """float32 [ids, dimension]; all must be there."""
        return np.asarray(self._index.reconstruct_batch(ids), dtype=np.float32).reshape(len(ids), self.dimension)

    def outgrown(self) -> bool:
        """Whether it should be built anew: it has grown far beyond what it was built for, or much of it is dead."""
        return False

    def write(self, path: Path) -> None:
        """Raises OSError."""
        try:
            load_faiss().write_index(self._index, str(path))
        except RuntimeError as error:  # of FAISS, whatever the disk says
            raise OSError(str(error)) from error

    @classmethod
    def read(cls, path: Path) -> Self:
        """What `write` wrote; the caller has made sure of that."""
        return cls(load_faiss().read_index(str(path)))

    def _compare(self, queries: Vectors, k: int, ids: IntArray) -> Found:
        """Exact: with each of these, which are there."""
        best: Found = (np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0), np.float32))
        for start in range(0, len(ids), EXACT_UP_TO):
            block = ids[start : start + EXACT_UP_TO]
            scores = queries @ self.vectors(block).T
            best = _best(np.hstack([best[0], np.broadcast_to(block, scores.shape)]), np.hstack([best[1], scores]), k)
        return _padded(*best, k)


class Removable(Structure):
    """FAISS takes its vectors out by itself, so their ids are all there is to keep beside it."""

    def __init__(self, index: Any, ids: IntArray) -> None:
        super().__init__(index)
        self._ids = ids  # ascending

    @property
    def ids(self) -> IntArray:
        return self._ids

    def add(self, ids: IntArray, vectors: Vectors) -> None:
        super().add(ids, vectors)
        self._ids = np.sort(np.concatenate([self._ids, ids]), kind="stable")

    def remove(self, ids: IntArray) -> None:
        self._index.remove_ids(ids)
        self._ids = np.setdiff1d(self._ids, ids, assume_unique=True)


def known(allowed: IntArray, ids: IntArray) -> IntArray:
    """Those of the allowed ids that are there; both ascend."""
    return allowed[among(allowed, ids)]


def among(asked: IntArray, ids: IntArray) -> NDArray[np.bool_]:
    """Which of the asked are there; `ids` ascend. np.isin would look at each of the ids."""
    if not len(ids):
        return np.zeros(len(asked), dtype=np.bool_)
    there: NDArray[np.bool_] = ids[np.minimum(np.searchsorted(ids, asked), len(ids) - 1)] == asked
    return there


def selector(ids: IntArray) -> Any:
    """Of ids that ascend: a bitmap, or a hash set where they lie too far apart."""
    faiss = load_faiss()
    if not len(ids) or int(ids[-1]) > _SPARSE * len(ids) + 65536:
        return faiss.IDSelectorBatch(ids)
    members = np.zeros(int(ids[-1]) + 1, dtype=bool)
    members[ids] = True
    return faiss.IDSelectorBitmap(np.packbits(members, bitorder="little"))


def found(scores: Vectors, ids: IntArray) -> Found:
    """What FAISS gives, with its own mark for missing scores made ours."""
    return ids, np.where(ids == MISSING, np.float32(-np.inf), scores)


def short(ids: IntArray, wanted: int) -> bool:
    """Whether some query found fewer than it should."""
    return bool(((ids != MISSING).sum(axis=1) < wanted).any())


def _best(ids: IntArray, scores: Vectors, k: int) -> Found:
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


def _padded(ids: IntArray, scores: Vectors, k: int) -> Found:
    missing = ((0, 0), (0, k - ids.shape[1]))
    return (
        np.pad(ids, missing, constant_values=MISSING),
        np.pad(scores, missing, constant_values=-np.inf).astype(np.float32),
    )


class Flat(Removable):
    """Exact: every vector is compared. The quickest for few, and what the others are measured against."""

    name: ClassVar[str] = "flat"

    @classmethod
    def build(cls, ids: IntArray, vectors: Vectors) -> Self:
        faiss = load_faiss()
        structure = cls(faiss.IndexIDMap2(faiss.IndexFlatIP(vectors.shape[1])))
        structure.add(ids, vectors)
        return structure

    def __init__(self, index: Any) -> None:
        super().__init__(index, np.sort(load_faiss().vector_to_array(index.id_map)))

    @property
    def nbytes(self) -> int:
        return len(self._ids) * (self.dimension * FLOAT + 2 * ID + ENTRY)

    def search(self, queries: Vectors, k: int, allowed: IntArray | None) -> Found:
        if allowed is None:
            return found(*self._index.search(queries, k))
        if len(allowed) <= EXACT_UP_TO:
            return self._compare(queries, k, known(allowed, self._ids))
        parameters = load_faiss().SearchParameters(sel=selector(allowed))
        return found(*self._index.search(queries, k, params=parameters))
