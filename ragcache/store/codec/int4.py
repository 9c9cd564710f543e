"""V per token as 4-bit steps and K per channel as 5-bit ones, in groups of 64, from the lowest to the highest value.

An error of K moves what is attended to, one of V is averaged over what is: so K has a bit more (docs/log.md).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.nn.functional import pad

from ragcache.store.codec.base import Codec, KVShape, within
from ragcache.store.codec.steps import quantise

GROUP = 64  # tokens of a channel of K, or channels of a token of V
_K_STEPS, _V_STEPS = 31, 15
_FLOAT = torch.bfloat16.itemsize
_TOKENS, _CHANNELS = 2, 3  # dimensions of [layers, kv_heads, n, head_dim]


class Int4Codec(Codec):
    """A layer is: low and step in bfloat16 of each group of K, then of V; a byte for each element [heads, n, dim], with
    four bits of K in its lower half and V in its upper; and the fifth bits of K. Byte i has those of element i and of
    those that are one, two … seven eighths of all behind it.
    """

    name: ClassVar[str] = "int4"

    def lossless(self, dtype: torch.dtype) -> bool:
        return False

    def layer_nbytes(self, shape: KVShape) -> int:
        return sum(_float_counts(shape)) * _FLOAT + shape.layer_elements + _eighth(shape.layer_elements)

    def encode(self, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k_floats, k_steps = _quantise(k.cpu().float(), _TOKENS, _K_STEPS)
        v_floats, v_steps = _quantise(v.cpu().float(), _CHANNELS, _V_STEPS)
        floats = torch.cat([k_floats, v_floats], dim=1).view(torch.uint8)
        halves = (k_steps & 15) | (v_steps << 4)
        return torch.cat([floats, halves.flatten(1), _packed(k_steps >> 4)], dim=1)

    def decode(self, rows: torch.Tensor, shape: KVShape) -> tuple[torch.Tensor, torch.Tensor]:
        size = (shape.layers, shape.kv_heads, shape.tokens, shape.head_dim)
        k, v = (torch.empty(size, dtype=shape.dtype, device=rows.device) for _ in range(2))
        self.decode_into(rows, shape, k, v)
        return k, v

    def decode_into(self, rows: torch.Tensor, shape: KVShape, k: torch.Tensor, v: torch.Tensor) -> None:
        k_count, v_count = _float_counts(shape)
        sizes = ((k_count + v_count) * _FLOAT, shape.layer_elements, _eighth(shape.layer_elements))
        floats, halves, fifths = rows.split(sizes, dim=1)
        k_floats, v_floats = floats.view(torch.bfloat16).split((k_count, v_count), dim=1)
        k_steps = (halves & 15).add_(_unpacked(fifths, shape.layer_elements), alpha=16)
        each = (shape.kv_heads, shape.tokens, shape.head_dim)
        _restore(k_steps.unflatten(1, each), k_floats, _TOKENS, k)
        _restore((halves >> 4).unflatten(1, each), v_floats, _CHANNELS, v)


def _float_counts(shape: KVShape) -> tuple[int, int]:
    """Of a layer's K and of its V."""
    k_groups = -(-shape.tokens // GROUP) * shape.head_dim
    v_groups = -(-shape.head_dim // GROUP) * shape.tokens
    return 2 * shape.kv_heads * k_groups, 2 * shape.kv_heads * v_groups


def _eighth(count: int) -> int:
    return -(-count // 8)


def _packed(bits: torch.Tensor) -> torch.Tensor:
    """Of [layers, …], eight to a byte: [layers, bytes]."""
    flat = bits.flatten(1)
    nbytes = _eighth(flat.shape[1])
    flat = pad(flat, (0, 8 * nbytes - flat.shape[1]))
    placed: torch.Tensor = flat.unflatten(1, (8, nbytes)) << _places(flat.device)
    return placed.sum(1, dtype=torch.uint8)


def _unpacked(packed: torch.Tensor, count: int) -> torch.Tensor:
    """[layers, count]"""
    return ((packed[:, None] >> _places(packed.device)) & 1).flatten(1)[:, :count]


def _places(device: torch.device) -> torch.Tensor:
    """Of a byte's bits. [8, 1]"""
    return torch.arange(8, dtype=torch.uint8, device=device)[:, None]


def _quantise(x: torch.Tensor, dim: int, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Low and step as [layers, floats], low before step in each run of GROUP along `dim`; uint8 of the shape of `x`."""
    floats, steps = [], []
    for part in x.split(GROUP, dim):
        low, step, found = quantise(part, dim, most)
        floats += [low.flatten(1), step.flatten(1)]
        steps.append(found)
    return torch.cat(floats, dim=1).to(torch.bfloat16), torch.cat(steps, dim)


def _restore(steps: torch.Tensor, floats: torch.Tensor, dim: int, place: torch.Tensor) -> None:
    """steps and place [layers, heads, n, dim]; floats [layers, floats], as `_quantise` gives them."""
    each = (1, steps.shape[3]) if dim == _TOKENS else (steps.shape[2], 1)
    groups = floats.unflatten(1, (-1, 2, steps.shape[1], *each))  # [layers, runs, 2, heads, 1 or n, dim or 1]
    for number, (part, there) in enumerate(zip(steps.split(GROUP, dim), place.split(GROUP, dim), strict=True)):
        low, step = groups[:, number].float().unbind(1)
        there.copy_(within(part.float().mul_(step).add_(low), place.dtype))
