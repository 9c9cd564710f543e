"""FAISS structures on the GPU, against the same in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.gpu import GpuBenchOptions, LeftOut
from benchmarks.output import Row
from benchmarks.retrieval import RetrievalBenchOptions
from benchmarks.retrieval.measurement import HITS, ClusteredSource, Clusters, nearest, recall
from benchmarks.timing import timed
from retriever import IntArray, RetrieverError, Vectors
from retriever.vector_index import COPIED, Copier, GpuCopy, gpu_copier
from retriever.vectors import STRUCTURES
from retriever.vectors.base import Found, Structure, load_faiss

QUERIES, WARM_UP = 1000, 20
Search = Callable[[Vectors], Found]


def measure(part: str, options: GpuBenchOptions) -> Iterator[tuple[str, list[Row]]]:
    """Raises LeftOut where FAISS is not there, or sees no GPU."""
    copier = _copier(options.device)
    count = options.vectors
    clusters = Clusters(RetrievalBenchOptions(queries=min(QUERIES, count), seed=options.seed))
    source, queries = ClusteredSource(clusters, count), clusters.block(count, clusters.options.queries)
    truth = nearest(source, queries)
    ids, _, vectors = (np.concatenate(parts) for parts in zip(*source.added(0), strict=True))
    built = (STRUCTURES[name].build(ids, vectors) for name in COPIED)
    yield part, [row for structure in built for row in _rows(structure, copier, queries, truth)]


def _copier(device: str) -> Copier:
    try:
        copier: Copier | None = gpu_copier() if device == "cuda" else load_faiss().clone_index
    except RetrieverError as error:
        raise LeftOut(str(error)) from error
    if copier is None:
        raise LeftOut("this FAISS sees no GPU: install faiss-gpu-cu12 in place of faiss-cpu")
    return copier


def _rows(structure: Structure, copier: Copier, queries: Vectors, truth: IntArray) -> Iterator[Row]:
    gpu = GpuCopy(copier)
    copied = timed(lambda: gpu.search(structure, queries[:1], HITS))
    yield _row(structure, "memory", 0.0, partial(structure.search, k=HITS, allowed=None), queries, truth)
    yield _row(structure, "gpu", copied, lambda asked: gpu.search(structure, asked, HITS), queries, truth)


def _row(structure: Structure, place: str, copied: float, search: Search, queries: Vectors, truth: IntArray) -> Row:
    for query in queries[:WARM_UP]:
        search(query[None])
    seconds = [timed(partial(search, query[None])) for query in queries]
    found: list[Found] = []
    together = timed(lambda: found.append(search(queries)))
    return {
        "index": structure.name,
        "place": place,
        "vectors": len(structure.ids),
        "recall_at_10": recall(list(found[0][0]), truth),
        "p50_ms": float(np.percentile(seconds, 50) * 1000),
        "p99_ms": float(np.percentile(seconds, 99) * 1000),
        "queries_per_s": len(queries) / together,
        "copied_s": copied,
    }
