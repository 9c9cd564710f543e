"""K per channel, V per token, as 8-bit steps from the lowest to the highest value of a group.

Unrotated K has channels with an offset far from zero, so a zero point is worth its bytes. The error of a value is at
most half a step, (highest - lowest) / 510 of its group, before rounding to the engine's dtype.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from ragcache.store.codec.base import Codec, KVShape, within
from ragcache.store.codec.steps import quantise

_STEPS = 255
_TOKENS, _CHANNELS = 2, 3  # dimensions of [layers, kv_heads, n, head_dim]


class Int8Codec(Codec):
    """A layer is: K low, K step [heads, dim], V low, V step [heads, n] in bfloat16, then K and V [heads, n, dim].

    The floats come first because the 8-bit part may end anywhere.
    """

    name: ClassVar[str] = "int8"
    _float: ClassVar[torch.dtype] = torch.bfloat16

    @property
    def stored(self) -> str:
        return "int8-2"

    def lossless(self, dtype: torch.dtype) -> bool:
        return False

    def layer_nbytes(self, shape: KVShape) -> int:
        return sum(self._float_counts(shape)) * self._float.itemsize + 2 * shape.layer_elements

    def encode(self, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k_low, k_step, k_steps = quantise(k.cpu().float(), _TOKENS, _STEPS)
        v_low, v_step, v_steps = quantise(v.cpu().float(), _CHANNELS, _STEPS)
        floats = torch.cat([part.flatten(1) for part in (k_low, k_step, v_low, v_step)], dim=1).to(self._float)
        return torch.cat([floats.view(torch.uint8), k_steps.flatten(1), v_steps.flatten(1)], dim=1)

    def decode(self, rows: torch.Tensor, shape: KVShape) -> tuple[torch.Tensor, torch.Tensor]:
        k_count, v_count = self._float_counts(shape)
        split = (k_count + v_count) * self._float.itemsize
        floats = rows[:, :split].view(self._float).float()
        steps = rows[:, split:].unflatten(1, (2, shape.kv_heads, shape.tokens, shape.head_dim))
        k_groups = floats[:, :k_count].unflatten(1, (2, shape.kv_heads, 1, shape.head_dim))
        v_groups = floats[:, k_count:].unflatten(1, (2, shape.kv_heads, shape.tokens, 1))
        return _restore(steps[:, 0], k_groups, shape.dtype), _restore(steps[:, 1], v_groups, shape.dtype)

    @staticmethod
    def _float_counts(shape: KVShape) -> tuple[int, int]:
        """Floats of a layer's K and of its V."""
        return 2 * shape.kv_heads * shape.head_dim, 2 * shape.kv_heads * shape.tokens


class WideInt8Codec(Int8Codec):
    """As it was written first: groups tell their low and step in float32."""

    _float: ClassVar[torch.dtype] = torch.float32

    @property
    def stored(self) -> str:
        return self.name


def _restore(steps: torch.Tensor, groups: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """steps [layers, heads, n, dim]; groups [layers, 2, heads, 1 or n, dim or 1]."""
    return within(steps.float().mul_(groups[:, 1]).add_(groups[:, 0]), dtype).to(dtype)
