"""Builds a chunk's profile while its KV is computed. On the hot path of ingest: two tensor operations per block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ragcache.types import FloatArray, Profile


class ProfileBuilder:
    """Sums the attention of one chunk over layers and heads; `build` cuts the sum into segments, once.

    Memory: one float32 [n, keys] on the device of the probabilities, whatever the number of layers.
    """

    def __init__(self, lengths: Sequence[int], n: int, layers: int) -> None:
        """`lengths`: tokens of the System (0 without one) and of each context chunk; `n`: of the chunk itself."""
        assert lengths, "row 0 is the System, of no tokens where there is none"
        assert n > 0, n
        self._lengths = tuple(lengths)
        self._n = n
        self._layers = layers
        self._rows = 0  # rows added so far, of n * layers
        self._total: torch.Tensor | None = None  # [n, keys]

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
            self._total = torch.zeros((self._n, keys), device=probabilities.device)
        self._total[start : start + rows, :end] += probabilities.mean(0, dtype=torch.float32)
        self._rows += rows

    def build(self) -> Profile:
        """The mean over all maps (eqs 3, 4 and 10). The builder stays as it is."""
        assert self._rows == self._n * self._layers, (self._rows, self._n, self._layers)
        assert self._total is not None
        mean = self._total / self._layers
        *context, own = torch.split(mean, [*self._lengths, self._n], dim=1)
        earlier = own.tril(-1)  # a token's attention to itself counts for neither side
        return Profile(
            inter=_array(torch.stack([part.sum(1) for part in context])),
            intra=_array(earlier.sum(1)),
            received=_array(earlier.sum(0)),
            lengths=self._lengths,
        )


def _array(tensor: torch.Tensor) -> FloatArray:
    return np.asarray(tensor.cpu().numpy(), dtype=np.float32)
