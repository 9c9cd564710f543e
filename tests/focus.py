"""The slow reference of ragcache/linking/focus.py: which chunks a question focuses on, and from which layer on that is
settled, line by line as Cache-Craft's algorithm 1 has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ragcache.types import FloatArray


@dataclass(frozen=True)
class Focus:
    chunks: frozenset[int]  # F*: indices of the focused chunks
    layer: int  # L*: after this many layers the others need no more repair


def focused_chunks(attention: FloatArray, window: int) -> Focus:
    """Algorithm 1 over `attention`: [layers, chunks], what each layer's question tokens spend on each chunk (eq 15).

    The paper leaves open what happens when the set never stays the same for `window` layers: nothing may be stopped
    early then, so all chunks are focused, up to the last layer.
    """
    assert window > 0, window
    layers, chunks = attention.shape
    history: list[frozenset[int]] = []
    cumulated = np.zeros(chunks)
    for layer in range(1, layers + 1):
        cumulated += attention[layer - 1]
        history.append(top_chunks(cumulated.tolist()))
        if layer >= window and len(set(history[layer - window : layer])) == 1:
            return Focus(history[-1], layer)
    return Focus(frozenset(range(chunks)), layers)


def top_chunks(cumulated: Sequence[float]) -> frozenset[int]:
    """Lines 4 to 9: cut the chunks, sorted by score, where the entropy of the gaps grows most.

    Counted from 1 as the paper does, i* is the first i in 1 … k-2 with the largest h[i+1] - h[i] = -p[i+1]·log p[i+1],
    and the top i* chunks are focused: the cut lies one chunk *above* gap i+1. Fewer than three chunks leave no i to
    choose, and equal scores no gap: all are focused then.
    """
    k = len(cumulated)
    order = sorted(range(k), key=lambda chunk: -cumulated[chunk])
    gaps = [cumulated[upper] - cumulated[lower] for upper, lower in pairwise(order)]
    if k < 3 or sum(gaps) <= 0.0:
        return frozenset(order)
    shares = [gap / sum(gaps) for gap in gaps]
    growth = [-p * math.log(p) if p > 0.0 else 0.0 for p in shares[1:]]  # h[i+1] - h[i] for i = 1 … k-2
    cut = growth.index(max(growth)) + 1
    return frozenset(order[:cut])
