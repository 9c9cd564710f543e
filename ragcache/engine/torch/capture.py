"""A segment's KV and profile, in one pass over the variants before it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ragcache.engine.base import EngineSpec
from ragcache.engine.torch.attention import attention_weights, weighted_values
from ragcache.engine.torch.decoder import Tap
from ragcache.scoring.profile import ProfileBuilder

ROWS = 256  # query rows whose attention weights exist at once


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
        self.k[layer], self.v[layer] = k, v

    def attend(self, layer: int, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        parts = []
        for start in range(0, q.shape[1], ROWS):
            rows = slice(start, start + ROWS)
            weights = attention_weights(q[:, rows], keys, self._positions[rows], self._scale)
            self.profile.add(weights, start)
            parts.append(weighted_values(weights, values))
        return torch.cat(parts)
