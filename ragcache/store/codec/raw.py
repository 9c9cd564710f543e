"""K and V as they are, in the engine's own dtype: exact, and decoded without a copy."""

from __future__ import annotations

from typing import ClassVar

import torch

from ragcache.store.codec.base import Codec, KVShape, within


class RawCodec(Codec):
    name: ClassVar[str] = "raw"

    def stored_dtype(self, engine_dtype: torch.dtype) -> torch.dtype:
        return engine_dtype

    def lossless(self, dtype: torch.dtype) -> bool:
        return self.stored_dtype(dtype) == dtype

    def layer_nbytes(self, shape: KVShape) -> int:
        return 2 * shape.layer_elements * self.stored_dtype(shape.dtype).itemsize

    def encode(self, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        stored = self.stored_dtype(k.dtype)
        rows = torch.cat([k.cpu().to(stored).flatten(1), v.cpu().to(stored).flatten(1)], dim=1)
        return rows.view(torch.uint8)

    def decode(self, rows: torch.Tensor, shape: KVShape) -> tuple[torch.Tensor, torch.Tensor]:
        values = rows.view(self.stored_dtype(shape.dtype))
        kv = values.unflatten(1, (2, shape.kv_heads, shape.tokens, shape.head_dim))  # [layers, 2, heads, n, dim]
        k, v = (within(part, shape.dtype).to(shape.dtype) for part in kv.unbind(1))
        return k, v


class Bf16Codec(RawCodec):
    """As bfloat16: exact for a bfloat16 engine, half the bytes for a float32 one."""

    name: ClassVar[str] = "bf16"

    def stored_dtype(self, engine_dtype: torch.dtype) -> torch.dtype:
        return torch.bfloat16
