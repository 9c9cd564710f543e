"""K and V as bfloat16: exact for a bfloat16 engine, half the bytes for a float32 one."""

from __future__ import annotations

from typing import ClassVar

import torch

from ragcache.store.codec.raw import RawCodec


class Bf16Codec(RawCodec):
    name: ClassVar[str] = "bf16"

    def stored_dtype(self, engine_dtype: torch.dtype) -> torch.dtype:
        return torch.bfloat16
