"""The sentences of chunks as vectors of 8 bits: what a question is compared with beside the chunk as a whole.

They are read for the chunks that the indexes have found, and kept with the chunks: no index and no memory of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
    codes, scales = _parts(packed if _fits(packed, dimension) else b"", dimension)
    return codes.astype(np.float32) * scales[:, np.newaxis]


def nearest(question: Vectors, chunks: Sequence[Packed | None]) -> FloatArray:
    """The cosine of each chunk's nearest sentence, [chunks]; NaN for one without any. `question`: [dimension]"""
    found = np.full(len(chunks), np.nan)
    dimension = len(question)
    there = [place for place, packed in enumerate(chunks) if packed and _fits(packed, dimension)]
    if there:
        packed = [chunks[place] or b"" for place in there]
        codes, scales = _parts(b"".join(packed), dimension)
        starts = np.cumsum([0, *map(len, packed[:-1])]) // (_SCALE.itemsize + dimension)
        found[there] = np.maximum.reduceat(codes.astype(np.float32) @ question * scales, starts)
    return found


def _fits(packed: Packed, dimension: int) -> bool:
    return len(packed) % (_SCALE.itemsize + dimension) == 0


def _parts(packed: Packed, dimension: int) -> tuple[NDArray[np.int8], Vectors]:
    """The codes, [sentences, dimension], and what they are multiplied by, [sentences]."""
    rows = np.frombuffer(packed, np.int8).reshape(-1, _SCALE.itemsize + dimension)
    scales = np.ascontiguousarray(rows[:, : _SCALE.itemsize]).view(_SCALE)[:, 0]
    return rows[:, _SCALE.itemsize :], scales
