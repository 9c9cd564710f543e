"""A segment's KV and profile, in one pass over the variants before it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ragcache.engine.base import EngineSpec
from ragcache.engine.torch.attention import read_attention
from ragcache.engine.torch.decoder import Tap
from ragcache.kvgen.profile import ProfileBuilder


class CaptureTap(Tap):
    """Keeps the rows' K before rotation and V, and attends by explicit weights, from which the profile is summed.

    The weights serve both the output and the profile, so profiling costs little more than attention itself.
    """

    def __init__(self, spec: EngineSpec, scale: float, lengths: Sequence[int], positions: range):
        shape = (spec.layers, spec.kv_heads, len(positions), spec.head_dim)
        self.k = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.v = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.profile = ProfileBuilder(lengths or (0,), len(positions), spec.layers)
        self._positions = torch.arange(positions.start, positions.stop, device=spec.device)
        self._scale = scale

    def kv(self, layer: int, k: torch.Tensor, rotated: torch.Tensor, v: torch.Tensor) -> None:
        rows = self._turn(v.shape[1])
        self.k[layer, :, rows], self.v[layer, :, rows] = k, v

    def attend(self, layer: int, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        parts = []
        for read in read_attention(q, keys, self._positions[self._turn(q.shape[1])], self._scale, values):
            self.profile.add(read.mean[None], self.first + read.start)
            assert read.attended is not None
            parts.append(read.attended)
        return torch.cat(parts)

    def _turn(self, rows: int) -> slice:
        return slice(self.first, self.first + rows)
