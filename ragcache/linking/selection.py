"""What the linkers share: what may be repaired, how many tokens a share is, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ragcache.linking.base import LinkedPrompt, PlacedChunk, Positions
from ragcache.types import FloatArray


def repairable(prompt: LinkedPrompt) -> list[PlacedChunk]:
    """The chunks a linker may choose from: those behind what they were computed behind need nothing."""
    return [chunk for chunk in prompt.chunks if not chunk.unchanged]


def tokens_of(chunks: Sequence[PlacedChunk]) -> Positions:
    """All positions of the chunks."""
    return union(np.arange(chunk.start, chunk.end) for chunk in chunks)


def heads_of(chunks: Sequence[PlacedChunk], count: int) -> Positions:
    """The first `count` positions of each chunk, or all of a shorter one."""
    return union(np.arange(chunk.start, min(chunk.start + count, chunk.end)) for chunk in chunks)


def tails_of(chunks: Sequence[PlacedChunk], count: int) -> Positions:
    """The last `count` positions of each chunk, or all of a shorter one."""
    return union(np.arange(max(chunk.end - count, chunk.start), chunk.end) for chunk in chunks)


def union(parts: Iterable[Positions]) -> Positions:
    """All positions of the parts, ascending, each once."""
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


def share(ratio: float, tokens: int) -> int:
    """⌈ratio · tokens⌉, at most all; a product that is whole but for float rounding counts as whole."""
    return min(tokens, math.ceil(round(ratio * tokens, 6)))


def top(scores: FloatArray, count: int) -> Positions:
    """Ascending indices of the `count` highest scores; of equal ones the earlier wins."""
    return np.sort(np.argsort(-scores, kind="stable")[:count])
