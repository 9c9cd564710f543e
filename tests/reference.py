"""The scores as the paper writes them: loops over whole attention matrices. Slow; the tests hold the fast code to it.

A matrix is [tokens, tokens] over System, context chunks and the chunk itself; `lengths` are the tokens of each, so
segment 0 is the System and the last one the chunk. `attention` is [layers, heads, tokens, tokens].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ragcache.types import FloatArray, Profile

Context = Sequence[tuple[str, int]]  # chunks by hash and copy number, so that two copies are two elements


def tokens_of(segment: int, lengths: Sequence[int]) -> range:
    start = sum(lengths[:segment])
    return range(start, start + lengths[segment])


def inter(matrix: FloatArray, rows: range, columns: range) -> float:
    """Eq 3: attention that the tokens `rows` pay to the earlier tokens `columns`."""
    total = 0.0
    for k in rows:
        for j in columns:
            total += float(matrix[k, j])
    return total


def intra(matrix: FloatArray, tokens: range) -> float:
    """Eq 4: attention within a chunk, from each token to the ones before it."""
    total = 0.0
    for k in tokens:
        for j in tokens:
            if j < k:
                total += float(matrix[k, j])
    return total


def outside(attention: FloatArray, lengths: Sequence[int]) -> float:
    """Eqs 9 and 10: a, over the context chunks (not the System), mean over layers and heads."""
    own = tokens_of(len(lengths) - 1, lengths)
    total = 0.0
    for matrix in maps_of(attention):
        for segment in range(1, len(lengths) - 1):
            total += inter(matrix, own, tokens_of(segment, lengths)) / (len(own) * lengths[segment])
    return total / len(maps_of(attention))


def inside(attention: FloatArray, lengths: Sequence[int]) -> float:
    """Eqs 9 and 10: b, mean over layers and heads."""
    own = tokens_of(len(lengths) - 1, lengths)
    total = 0.0
    for matrix in maps_of(attention):
        total += intra(matrix, own) / len(own) ** 2
    return total / len(maps_of(attention))


def cci(attention: FloatArray, lengths: Sequence[int]) -> float:
    """Eq 11. Without b there is no ratio: 1 if there is context, else 1/2."""
    a, b = outside(attention, lengths), inside(attention, lengths)
    if b == 0.0:
        return 1.0 if a > 0.0 else 0.5
    return 1.0 / (1.0 + math.exp(-a / b))


def beta(attention: FloatArray, lengths: Sequence[int], old: Sequence[str], new: Sequence[str]) -> float:
    """Eq 6, and the two cases in which its denominator is zero."""
    if not old:
        return 0.0 if new else 1.0
    own = tokens_of(len(lengths) - 1, lengths)
    shared, everything, count = 0.0, 0.0, 0
    for j, chunk in enumerate(numbered(old)):
        weight = sum(inter(matrix, own, tokens_of(j + 1, lengths)) for matrix in maps_of(attention))
        everything += weight
        if chunk in numbered(new):
            shared += weight
            count += 1
    return shared / everything if everything > 0.0 else count / len(old)


def gamma(old: Sequence[str], new: Sequence[str]) -> float:
    """Eq 7: the normalised Kendall tau distance of the shared chunks' two orders."""
    a_old = [chunk for chunk in numbered(old) if chunk in numbered(new)]
    a_new = [chunk for chunk in numbered(new) if chunk in numbered(old)]
    m = len(a_old)
    if m < 2:
        return 0.0
    discordant = 0
    for x in a_old:
        for y in a_old:
            if a_old.index(x) < a_old.index(y) and a_new.index(x) > a_new.index(y):
                discordant += 1
    return discordant / (m * (m - 1) / 2)


def beta_adjusted(attention: FloatArray, lengths: Sequence[int], old: Sequence[str], new: Sequence[str]) -> float:
    """Eq 8."""
    return beta(attention, lengths, old, new) * (1.0 - gamma(old, new))


def cfo(
    attention: FloatArray, lengths: Sequence[int], old: Sequence[str], new: Sequence[str], alpha: float = 1.0
) -> float:
    """Eq 12, at most 1."""
    return min(1.0, alpha * cci(attention, lengths) * (1.0 - beta_adjusted(attention, lengths, old, new)))


def profile(attention: FloatArray, lengths: Sequence[int]) -> Profile:
    """Eqs 3 and 4 per token of the chunk, mean over layers and heads."""
    own = tokens_of(len(lengths) - 1, lengths)
    rows = np.zeros((len(lengths) - 1, len(own)))
    given, received = np.zeros(len(own)), np.zeros(len(own))
    for matrix in maps_of(attention):
        for t, k in enumerate(own):
            for segment in range(len(lengths) - 1):
                rows[segment, t] += inter(matrix, range(k, k + 1), tokens_of(segment, lengths))
            for earlier in range(t):
                given[t] += matrix[k, own[earlier]]
                received[earlier] += matrix[k, own[earlier]]
    count = len(maps_of(attention))
    means = [(total / count).astype(np.float32) for total in (rows, given, received)]
    return Profile(inter=means[0], intra=means[1], received=means[2], lengths=tuple(lengths[:-1]))


def maps_of(attention: FloatArray) -> list[FloatArray]:
    return [matrix for layer in attention for matrix in layer]


def numbered(chunks: Sequence[str]) -> Context:
    return [(chunk, list(chunks[:place]).count(chunk)) for place, chunk in enumerate(chunks)]
