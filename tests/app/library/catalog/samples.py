"""Documents and chunks for the tests of the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.library.catalog import Catalog
from app.library.catalog.records import ChunkRecord, Collection, DocumentRecord

DIMENSION = 4


def make_collection(catalog: Catalog, name: str = "default", **changes: Any) -> Collection:
    values = {
        "embedder": "bundled:minilm",
        "embedder_fingerprint": "f" * 64,
        "dimension": DIMENSION,
        "splitter": "auto",
    }
    return catalog.collections.create(name, **(values | changes))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def document(
    words: Sequence[str], source: str = "/docs/a.txt", **changes: Any
) -> tuple[DocumentRecord, list[ChunkRecord]]:
    """A document whose chunks are `words`, one space apart."""
    text = " ".join(words)
    values = {"source": source, "content_hash": digest(text), "size": len(text), "mtime_ns": 7, "kind": "prose"}
    chunks, start = [], 0
    for word in words:
        chunks.append(ChunkRecord(start, start + len(word), word, len(word), digest(word), vector(word)))
        start += len(word) + 1
    return DocumentRecord(**({"title": source, "text": text} | values | changes)), chunks


def vector(word: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    seed = int(digest(word)[:8], 16)
    return np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
