"""Vectors are made in blocks when they are asked for, so that a million of them are in memory once: in the index."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from benchmarks.output import Row, publish
from benchmarks.retrieval import RetrievalBenchOptions
from ragcache.errors import ConfigError
from retriever import IntArray, Vectors
from retriever.source import Batch, Position, Source, Where
from retriever.vector_index import VectorIndex
from retriever.vectors.base import load_faiss

if TYPE_CHECKING:  # a benchmark of ragcache and retriever alone runs where the application's libraries are not
    from app.settings import Settings

HITS = 10
BLOCK = 4096
WARM_UP = 50  # queries that do not count


@dataclass(frozen=True)
class Clusters:
    """Vectors of length 1 around random centres; of uneven size, as topics are."""

    options: RetrievalBenchOptions

    def block(self, number: int, count: int) -> Vectors:
        """The same for the same number; other numbers are other draws from the same clusters."""
        random = np.random.default_rng((self.options.seed, 1, number))
        chosen = np.searchsorted(self._shares, random.random(count))
        noise = random.standard_normal((count, self.options.dimension), dtype=np.float32)
        vectors = self._centres[chosen] + noise * np.float32(self.options.spread / self.options.dimension**0.5)
        return _normal(vectors)

    @cached_property
    def _centres(self) -> Vectors:
        random = np.random.default_rng((self.options.seed, 0))
        return _normal(random.standard_normal((self.options.clusters, self.options.dimension), dtype=np.float32))

    @cached_property
    def _shares(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Up to which number between 0 and 1 each cluster reaches."""
        weights = 1 / np.sqrt(np.arange(1, self.options.clusters + 1))
        reached: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.cumsum(weights) / weights.sum()
        reached[-1] = 1.0
        return reached


class ClusteredSource(Source):
    """So many of them as an index follows them. `seconds` were spent making them."""

    def __init__(self, clusters: Clusters, count: int) -> None:
        self._clusters = clusters
        self._count = count
        self.seconds = 0.0

    @property
    def dimension(self) -> int:
        return self._clusters.options.dimension

    def position(self) -> Position:
        return Position(self._count, 0, self._count)

    def added(self, after: int, batch: int = BLOCK) -> Iterator[Batch]:
        for start in range(after, self._count, batch):
            count = min(batch, self._count - start)
            started = time.perf_counter()
            vectors = self._clusters.block(start, count)
            self.seconds += time.perf_counter() - started
            yield np.arange(start + 1, start + count + 1, dtype=np.int64), [""] * count, vectors

    def retired(self, after: int, most: int = BLOCK) -> list[tuple[int, int]]:
        return []

    def live_ids(self, where: Where) -> IntArray:
        return np.arange(1, self._count + 1, dtype=np.int64)


def main(_: Settings, options: RetrievalBenchOptions, out: Path | None) -> list[Row]:
    if min(options.vectors) < HITS:
        raise ConfigError(f"--vectors {min(options.vectors)}: give at least {HITS}, since {HITS} are looked for")
    clusters = Clusters(options)
    queries = clusters.block(max(options.vectors), options.queries)  # no block of vectors starts there
    rows: list[Row] = []
    for count in tqdm(options.vectors, desc="retrieval", unit="size"):
        truth = nearest(ClusteredSource(clusters, count), queries)
        rows += [measure(ClusteredSource(clusters, count), name, queries, truth) for name in options.indexes]
    settings = options.settings() | {"threads": load_faiss().omp_get_max_threads(), "faiss": _faiss_version()}
    publish(settings, rows, out)
    return rows


def nearest(source: Source, queries: Vectors) -> IntArray:
    """Brute force, block by block: the ids of the nearest to each query. [queries, hits]"""
    best = np.full((len(queries), HITS), -np.inf, dtype=np.float32)
    ids = np.full((len(queries), HITS), -1, dtype=np.int64)
    for block_ids, _, vectors in source.added(0):
        scores = np.hstack([best, queries @ vectors.T])
        every = np.hstack([ids, np.broadcast_to(block_ids, (len(queries), len(block_ids)))])
        top = np.argpartition(-scores, HITS - 1, axis=1)[:, :HITS]
        best, ids = np.take_along_axis(scores, top, axis=1), np.take_along_axis(every, top, axis=1)
    return ids


def measure(source: ClusteredSource, name: str, queries: Vectors, truth: IntArray) -> Row:
    """One index, built from the source as an ingest builds it and asked one query at a time."""
    with tempfile.TemporaryDirectory(prefix="ragcache-bench-") as folder:
        index = VectorIndex(source.dimension, "synthetic", Path(folder), name)
        started = time.perf_counter()
        index.catch_up(source)
        index.save()
        built = time.perf_counter() - started - source.seconds
        nbytes = sum(path.stat().st_size for path in Path(folder).iterdir())
    for query in queries[:WARM_UP]:
        index.search(query, HITS)
    found, seconds = _timed(index, queries)
    return {
        "index": index.structure,
        "vectors": index.live,
        "recall_at_10": recall(found, truth),
        "p50_ms": float(np.percentile(seconds, 50) * 1000),
        "p99_ms": float(np.percentile(seconds, 99) * 1000),
        "build_s": built,
        "bytes": nbytes,
    }


def recall(found: Sequence[IntArray], truth: IntArray) -> float:
    """The mean part of the true hits that were found."""
    return float(np.mean([len(np.intersect1d(one, own)) / len(own) for one, own in zip(found, truth, strict=True)]))


def _timed(index: VectorIndex, queries: Vectors) -> tuple[list[IntArray], list[float]]:
    found, seconds = [], []
    for query in queries:
        started = time.perf_counter()
        ids, _ = index.search(query, HITS)
        seconds.append(time.perf_counter() - started)
        found.append(ids[0])
    return found, seconds


def _normal(vectors: Vectors) -> Vectors:
    normal: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return normal


def _faiss_version() -> str:
    return str(getattr(load_faiss(), "__version__", None) or version("faiss-cpu"))
