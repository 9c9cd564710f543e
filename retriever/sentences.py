"""The sentences of chunks as vectors of 8 bits: what a question is compared with beside the chunk as a whole.

They are read for the chunks that the indexes have found, and kept with the chunks: no index and no memory of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from retriever import FloatArray, Vectors

_STEPS = 127
_SCALE = np.dtype("<f4")
Packed = bytes  # of each sentence a scale and a byte for each dimension


def pack(vectors: Vectors) -> Packed:
    """`vectors`: [sentences, dimension]. A value is off by at most half of the largest one's 127th."""
    scales = np.abs(vectors).max(axis=1, keepdims=True, initial=0) / _STEPS
    codes = np.round(vectors / np.where(scales > 0, scales, 1)).astype(np.int8)
    packed: Packed = np.concatenate([scales.astype(_SCALE).view(np.int8), codes], axis=1).tobytes()
    return packed


def unpack(packed: Packed, dimension: int) -> Vectors:
    """float32 [sentences, dimension]; no row for what cannot be of this dimension."""
    row = _SCALE.itemsize + dimension
    if len(packed) % row:
        return np.empty((0, dimension), np.float32)
    rows = np.frombuffer(packed, np.int8).reshape(-1, row)
    scales = np.ascontiguousarray(rows[:, : _SCALE.itemsize]).view(_SCALE)
    return rows[:, _SCALE.itemsize :].astype(np.float32) * scales


def nearest(question: Vectors, chunks: Sequence[Packed | None]) -> FloatArray:
    """The cosine of each chunk's nearest sentence, [chunks]; NaN for one without any. `question`: [dimension]"""
    found = np.full(len(chunks), np.nan)
    parts = [unpack(packed or b"", len(question)) for packed in chunks]
    there = [place for place, part in enumerate(parts) if len(part)]
    if there:
        starts = np.cumsum([0, *(len(parts[place]) for place in there[:-1])])
        found[there] = np.maximum.reduceat(np.concatenate([parts[place] for place in there]) @ question, starts)
    return found
