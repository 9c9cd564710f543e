"""K per channel, V per token, as 8-bit steps between the lowest and the highest value.

Unrotated K has channels with an offset far from zero, so a zero point is worth its four bytes. The error of a value is
at most half a step, (highest - lowest) / 510 of its group, before rounding to the engine's dtype.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from ragcache.store.codec.base import Codec, KVShape

_STEPS = 255
_FLOAT = torch.float32.itemsize
_TOKENS, _CHANNELS = 2, 3  # dimensions of [layers, kv_heads, n, head_dim]


class Int8Codec(Codec):
    """A layer is: K low, K step [heads, dim], V low, V step [heads, n] in float32, then K and V [heads, n, dim].

    The floats come first because the 8-bit part may end anywhere.
    """

    name: ClassVar[str] = "int8"

    def lossless(self, dtype: torch.dtype) -> bool:
        return False

    def layer_nbytes(self, shape: KVShape) -> int:
        return sum(self._float_counts(shape)) * _FLOAT + 2 * shape.layer_elements

    def encode(self, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k_floats, k_steps = _quantise(k.cpu().float(), _TOKENS)
        v_floats, v_steps = _quantise(v.cpu().float(), _CHANNELS)
        floats = torch.cat([k_floats, v_floats], dim=1).view(torch.uint8)
        return torch.cat([floats, k_steps.flatten(1), v_steps.flatten(1)], dim=1)

    def decode(self, rows: torch.Tensor, shape: KVShape) -> tuple[torch.Tensor, torch.Tensor]:
        k_count, v_count = self._float_counts(shape)
        split = (k_count + v_count) * _FLOAT
        floats = rows[:, :split].view(torch.float32)
        steps = rows[:, split:].unflatten(1, (2, shape.kv_heads, shape.tokens, shape.head_dim))
        k_groups = floats[:, :k_count].unflatten(1, (2, shape.kv_heads, 1, shape.head_dim))
        v_groups = floats[:, k_count:].unflatten(1, (2, shape.kv_heads, shape.tokens, 1))
        return _restore(steps[:, 0], k_groups, shape.dtype), _restore(steps[:, 1], v_groups, shape.dtype)

    @staticmethod
    def _float_counts(shape: KVShape) -> tuple[int, int]:
        """Floats of a layer's K and of its V."""
        return 2 * shape.kv_heads * shape.head_dim, 2 * shape.kv_heads * shape.tokens


def _quantise(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(low, step) of each group along `dim` as [layers, 2 * groups], and uint8 of the shape of `x`."""
    low = x.amin(dim, keepdim=True)
    step = (x.amax(dim, keepdim=True) - low) / _STEPS
    # A constant group has step 0: every value is its low.
    steps = ((x - low) / torch.where(step > 0, step, 1.0)).round().clamp(0, _STEPS).to(torch.uint8)
    return torch.cat([low.flatten(1), step.flatten(1)], dim=1), steps


def _restore(steps: torch.Tensor, groups: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """steps [layers, heads, n, dim]; groups [layers, 2, heads, 1 or n, dim or 1]."""
    return steps.float().mul_(groups[:, 1]).add_(groups[:, 0]).to(dtype)
