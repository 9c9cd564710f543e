"""A Source in memory, for programs that keep their chunks themselves, for benchmarks and for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from retriever import IntArray, RetrieverError, Vectors
from retriever.sentences import Packed
from retriever.source import Batch, Position, Source, Where


@dataclass(frozen=True)
class _Chunk:
    text: str
    vector: Vectors  # [dimension]
    metadata: Mapping[str, object]
    sentences: Packed | None


class MemorySource(Source):
    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._chunks: dict[int, _Chunk] = {}  # the live ones; ids ascend
        self._high = 0
        self._log: list[int] = []  # ids; the retirement with number n is at n - 1
        self._lock = threading.Lock()

    @property
    def dimension(self) -> int:
        return self._dimension

    def add(
        self,
        texts: Sequence[str],
        vectors: Vectors,
        metadata: Sequence[Mapping[str, object]] | None = None,
        sentences: Sequence[Packed | None] | None = None,
    ) -> IntArray:
        """The ids that the chunks get."""
        if vectors.shape != (len(texts), self._dimension):
            raise RetrieverError(
                f"{len(texts)} texts need vectors of shape {(len(texts), self._dimension)}, not {vectors.shape}"
            )
        described = metadata if metadata is not None else [{}] * len(texts)
        packed = sentences if sentences is not None else [None] * len(texts)
        with self._lock:
            first = self._high + 1
            for one in zip(texts, np.array(vectors, dtype=np.float32), described, packed, strict=True):
                self._high += 1
                self._chunks[self._high] = _Chunk(*one)
            return np.arange(first, self._high + 1, dtype=np.int64)

    def retire(self, ids: Iterable[int]) -> None:
        """What is retired already stays so."""
        with self._lock:
            for number in map(int, ids):
                if self._chunks.pop(number, None) is not None:
                    self._log.append(number)

    def texts(self, ids: Sequence[int] | IntArray) -> list[str]:
        with self._lock:
            return [self._chunks[int(number)].text for number in ids]

    def position(self) -> Position:
        with self._lock:
            return Position(self._high, len(self._log), len(self._chunks))

    def added(self, after: int, batch: int = 4096) -> Iterator[Batch]:
        with self._lock:
            chosen = [(number, chunk) for number, chunk in self._chunks.items() if number > after]
        for start in range(0, len(chosen), batch):
            part = chosen[start : start + batch]
            yield (
                np.array([number for number, _ in part], dtype=np.int64),
                [chunk.text for _, chunk in part],
                np.stack([chunk.vector for _, chunk in part]),
            )

    def sentences(self, ids: IntArray) -> list[Packed | None]:
        with self._lock:
            found = [self._chunks.get(number) for number in ids.tolist()]
        return [chunk.sentences if chunk else None for chunk in found]

    def retired(self, after: int, most: int = 4096) -> list[tuple[int, int]]:
        with self._lock:
            return list(enumerate(self._log[after : after + most], start=after + 1))

    def live_ids(self, where: Where) -> IntArray:
        with self._lock:
            for key, values in where.items():
                self._check(key, values)
            found = [number for number, chunk in self._chunks.items() if _matches(chunk.metadata, where)]
        return np.array(found, dtype=np.int64)

    def _check(self, key: str, values: Sequence[object]) -> None:
        """Raises RetrieverError for a filter that can match nothing."""
        if isinstance(values, str) or not values:
            raise RetrieverError(f"the filter {key!r} is {values!r}: give a list of one value or more, or leave it out")
        known = [chunk.metadata[key] for chunk in self._chunks.values() if key in chunk.metadata]
        for value in values:
            if value not in known:
                raise RetrieverError(f"no chunk has {key!r} {value!r}: filter by what the chunks were added with")


def _matches(metadata: Mapping[str, object], where: Where) -> bool:
    return all(key in metadata and metadata[key] in allowed for key, allowed in where.items())
