"""The contract of codecs: how the K and V of a layer become bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from ragcache.types import KVForm


@dataclass(frozen=True)
class KVShape:
    """K and V are each [layers, kv_heads, tokens, head_dim]."""

    layers: int
    kv_heads: int
    tokens: int
    head_dim: int
    dtype: torch.dtype  # of the engine: what `decode` gives back, whatever is stored

    @classmethod
    def of(cls, k: torch.Tensor) -> KVShape:
        layers, kv_heads, tokens, head_dim = k.shape
        return cls(layers, kv_heads, tokens, head_dim, k.dtype)

    @property
    def form(self) -> KVForm:
        return KVForm(self.layers, self.kv_heads, self.head_dim)

    @property
    def layer_elements(self) -> int:
        return self.kv_heads * self.tokens * self.head_dim

    def with_layers(self, layers: int) -> KVShape:
        return replace(self, layers=layers)

    def with_tokens(self, tokens: int) -> KVShape:
        return replace(self, tokens=tokens)


class Codec(ABC):
    """Layers are independent: row l of the encoded tensor is layer l, and any run of rows can be decoded alone."""

    name: ClassVar[str]

    @property
    def stored(self) -> str:
        """What files say. Another one where `name` has stood for another layout before."""
        return self.name

    @abstractmethod
    def layer_nbytes(self, shape: KVShape) -> int:
        """Bytes of one encoded layer, known from the shape alone."""

    @abstractmethod
    def lossless(self, dtype: torch.dtype) -> bool:
        """Whether an engine of this number format gets back each bit that it gave."""

    @abstractmethod
    def encode(self, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """uint8 [layers, layer_nbytes], on the CPU. `k` and `v` (any strides, any device) are not written."""

    @abstractmethod
    def decode(self, rows: torch.Tensor, shape: KVShape) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V in `shape.dtype`, contiguous in their last two dimensions; they may share the memory of `rows`.

        rows: uint8 [shape.layers, layer_nbytes], contiguous in the last dimension, the first stride a multiple of 64.
        """

    def decode_into(self, rows: torch.Tensor, shape: KVShape, k: torch.Tensor, v: torch.Tensor) -> None:
        """`decode`, written to where it belongs (any strides). One that can do without a copy in between may, if it
        writes each value once: another thread may have written it before, and somebody reads it.
        """
        for place, part in zip((k, v), self.decode(rows, shape), strict=True):
            place.copy_(part)


def within(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decoded values as the engine's number format can hold them. float16 ends where rounding to what is stored may
    have gone beyond: its largest number stands for that, and inf for inf alone.
    """
    if dtype != torch.float16 or values.dtype == dtype:
        return values
    wide, most = values.float(), torch.finfo(dtype).max
    return torch.where(wide.isinf(), wide, wide.clamp(-most, most))
