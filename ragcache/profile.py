"""The profile of a chunk, summed while its KV is computed (Cache-Craft, equations 3, 4 and 10).

It needs torch, which those who score do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ragcache.types import FloatArray, Profile


class ProfileBuilder:
    """Sums the attention of one chunk over layers, heads and segments as it comes, on the hot path of ingest; `build`
    divides, once.

    Memory: a float32 per token and row of the profile, on the device of the probabilities.
    """

    def __init__(self, lengths: Sequence[int], n: int, layers: int) -> None:
        """`lengths`: tokens of the System (0 without one) and of each context chunk; `n`: of the chunk itself."""
        assert lengths, "row 0 is the System, of no tokens where there is none"
        assert n > 0, n
        self._lengths = tuple(lengths)
        self._n = n
        self._layers = layers
        self._rows = 0  # rows added so far, of n * layers
        self._total: torch.Tensor | None = None  # [context + 3, n]: rows of inter, then intra, then received

    def add(self, probabilities: torch.Tensor, start: int = 0) -> None:
        """Add rows [start, start + rows) of a layer: [heads, rows, end], softmaxed.

        Keys = System, context chunks, the chunk, in order; `end` may stop where the rows' causal view does. Each row
        of each layer once, in any order. The tensor is only read.
        """
        _, rows, end = probabilities.shape
        keys = sum(self._lengths) + self._n
        assert start + rows <= self._n, (start, rows, self._n)
        assert end <= keys, (end, keys)
        if self._total is None:
            self._total = torch.zeros((len(self._lengths) + 2, self._n), device=probabilities.device)
        mean = probabilities.mean(0, dtype=torch.float32)
        own, place = slice(start, start + rows), 0
        for total, length in zip(self._total, self._lengths, strict=False):
            total[own] += mean[:, place : place + length].sum(1)
            place += length
        earlier = mean[:, place:].tril(start - 1)  # a token's attention to itself counts for neither side
        self._total[-2, own] += earlier.sum(1)
        self._total[-1, : earlier.shape[1]] += earlier.sum(0)
        self._rows += rows

    def build(self) -> Profile:
        """The mean over all maps (eqs 3, 4 and 10). The builder stays as it is."""
        assert self._rows == self._n * self._layers, (self._rows, self._n, self._layers)
        assert self._total is not None
        *context, intra, received = self._total / self._layers
        return Profile(_array(torch.stack(context)), _array(intra), _array(received), lengths=self._lengths)


def _array(tensor: torch.Tensor) -> FloatArray:
    return np.asarray(tensor.cpu().numpy(), dtype=np.float32)
