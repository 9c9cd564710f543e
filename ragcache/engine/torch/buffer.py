"""The KV of one prompt, written in place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from ragcache.loader.base import Block
from ragcache.rope import Rope


class KVBuffer:
    """K (rotated) and V for positions [0, capacity): one allocation, no copy per layer or per token."""

    def __init__(self, kv: torch.Tensor):
        """`kv` [2, layers, kv_heads, capacity, head_dim] need not be zeroed: a position is written (placed or computed)
        before any row attends to it.
        """
        self.k, self.v = kv.unbind()

    @property
    def capacity(self) -> int:
        return self.k.shape[2]

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def place(self, block: Block, rope: Rope) -> None:
        """The block may lie in another memory than the buffer."""
        rope.rotate_into(self.k[block.layers, :, block.span], block.k.to(self.k.device), block.span)
        self.v[block.layers, :, block.span] = block.v

    def blank(self, positions: npt.NDArray[np.int64], layers: int) -> None:
        """Zeros at positions that hold nothing yet, in the first layers: whoever reads them reads no old memory."""
        if len(positions):
            places = torch.from_numpy(positions).to(self.k.device)
            self.k[:layers, :, places] = 0
            self.v[:layers, :, places] = 0
