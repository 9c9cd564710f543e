"""New embeddings on their way into SQL: a file that is only ever added to, so that a stopped run can go on.

Each record says which chunk it is of and has a checksum: what a crash has torn is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xxhash

from ragcache.private import private_file
from retriever.types import IntArray, Vectors

_ROWS = 2048  # read at once


class VectorLog:
    """Raises OSError. One process writes at a time."""

    def __init__(self, path: Path, dimension: int) -> None:
        self.path = path
        self._record = np.dtype([("id", "<i8"), ("check", "<u8"), ("vector", "<f4", (dimension,))])

    def append(self, ids: IntArray, vectors: Vectors) -> None:
        """`ids` [n], `vectors` [n, dimension]"""
        rows = np.empty(len(ids), self._record)
        rows["id"], rows["vector"] = ids, vectors
        rows["check"] = [_check(row) for row in rows]
        private_file(self.path)
        with self.path.open("ab") as file:
            whole = file.tell() - file.tell() % self._record.itemsize
            file.truncate(whole)  # what a killed writer has left of a record
            file.write(rows.tobytes())

    def batches(self) -> Iterator[tuple[IntArray, Vectors]]:
        """All sound records, in the order in which they were written."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            while data := file.read(_ROWS * self._record.itemsize):
                rows = np.frombuffer(data[: len(data) - len(data) % self._record.itemsize], self._record)
                sound = rows[[row["check"] == _check(row) for row in rows]] if len(rows) else rows
                yield sound["id"].astype(np.int64), sound["vector"].astype(np.float32)

    def ids(self) -> IntArray:
        return np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in self.batches())])


def _check(row: np.void) -> int:
    return xxhash.xxh3_64_intdigest(row["id"].tobytes() + row["vector"].tobytes())
