"""What splitters need of a model, without one. It imports nothing heavy."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

from splitter.base import Offsets, Vectors


class Words:
    """A model whose tokens are words and what stands between them."""

    def count(self, text: str) -> int:
        return len(self.offsets(text))

    def offsets(self, text: str) -> Sequence[Offsets]:
        return [found.span() for found in re.finditer(r"\w+|[^\w\s]", text)]


def letters(texts: Sequence[str]) -> Vectors:
    """Which first letters the words of a text have: what it is about, without a model."""
    vectors = np.full((len(texts), 32), 1e-3, dtype=np.float32)
    for row, text in zip(vectors, texts, strict=True):
        for word in text.lower().split():
            row[zlib.crc32(word[:1].encode("utf-8", "surrogatepass")) % 32] += 1
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)
