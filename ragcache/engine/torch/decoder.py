"""A decoder's weights, the KV of a prompt, and the one forward that everything runs through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ragcache.engine.torch.attention import RowBlock, attend, row_blocks
from ragcache.loader import Block
from ragcache.rope import Rope, turn

# The order depends on the rows it is made for only a little; so many are typical of a repair.
REPAIR_ROWS = 32
Module = Callable[[torch.Tensor], torch.Tensor]


class PackedLinear(nn.Module):
    """A linear layer whose weight is held in the order that the CPU's matrix kernels read, and not plain beside it. The
    numbers are those of the plain one, whose bfloat16 weight would be brought into that order anew at every call: to a
    pass of few rows (a repair, a probe, a decoded token) that costs more than its arithmetic.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), REPAIR_ROWS)
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return out


def packs(weight: torch.Tensor) -> bool:
    """Whether this weight's kernels know a packed order: bfloat16 on a CPU that multiplies it."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()  # false where torch was built without oneDNN
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
    """A linear layer of these weights, packed where that is possible."""
    if packs(weight):
        return PackedLinear(weight, bias)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def pack_linears(module: nn.Module, *names: str) -> None:
    """Put packed layers in the places of the named linear layers, where that is possible. One that computes by more
    than its weight, as with an adapter, stays as it is.
    """
    for name in names:
        linear = getattr(module, name)
        if type(linear) is nn.Linear and packs(linear.weight):
            setattr(module, name, PackedLinear(linear.weight, linear.bias))


class KVBuffer:
    """K (rotated) and V for positions [0, capacity): one allocation, no copy per layer or per token."""

    def __init__(self, kv: torch.Tensor):
        """`kv` [2, layers, kv_heads, capacity, head_dim] need not be zeroed: a position is written (placed or computed)
        before any row attends to it.
        """
        self.k, self.v = kv.unbind()
        self.lacks: Callable[[int], None] | None = None  # called before a layer is computed, to place what it lacks

    def place(self, block: Block, rope: Rope) -> None:
        """The block lies in the buffer's memory."""
        if block.turned:
            self.k[block.layers, :, block.span] = block.k
        else:
            rope.rotate_into(self.k[block.layers, :, block.span], block.k, block.span)
        self.v[block.layers, :, block.span] = block.v

    def blank(self, positions: npt.NDArray[np.int64], layers: int) -> None:
        """Zeros at positions that hold nothing yet, in the first layers: whoever reads them reads no old memory."""
        if len(positions):
            places = torch.from_numpy(positions).to(self.k.device)
            self.k[:layers, :, places] = 0
            self.v[:layers, :, places] = 0


class Tap:
    """What sits in on every layer of a forward; this one does nothing. It never writes the buffer."""

    first = 0  # the first row of this turn among all rows of the forward, which go through the layers in turns

    def kv(self, layer: int, k: torch.Tensor, rotated: torch.Tensor, v: torch.Tensor) -> None:
        """Fresh K (unrotated, rotated) and V of the rows, each [kv_heads, n, dim]; the buffer still holds the old."""

    def attend(self, layer: int, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor | None:
        """Rotated q [heads, n, dim] over the buffer with the rows' fresh KV -> [n, heads * dim], or None for SDPA."""
        return None


@dataclass(frozen=True)
class DecoderLayer:
    input_norm: Module
    qkv: Module  # [n, hidden] -> [n, (heads + 2 kv_heads) * dim]
    q_norm: Module | None
    k_norm: Module | None
    output: Module
    post_norm: Module
    mlp: Module


@dataclass(frozen=True)
class ForwardRows:
    """What all layers of one forward share."""

    positions: torch.Tensor  # [n] ascending
    cos: torch.Tensor  # [n, 1, dim]
    sin: torch.Tensor
    dtype: torch.dtype

    @cached_property
    def blocks(self) -> list[RowBlock]:
        """Masks, made when a layer first needs them: a tap may attend by itself."""
        return row_blocks(self.positions, self.dtype)


@dataclass(frozen=True)
class Decoder:
    """Forward of scattered rows over a KV buffer. It knows nothing of chunks or caches."""

    embed: nn.Embedding
    layers: tuple[DecoderLayer, ...]
    norm: Module
    head: nn.Linear
    rope: Rope
    heads: int
    kv_heads: int
    dim: int
    scale: float

    def forward(
        self, hidden: torch.Tensor, positions: torch.Tensor, buffer: KVBuffer, layers: range, tap: Tap | None = None
    ) -> torch.Tensor:
        """Rows `hidden` [n, hidden] at ascending `positions` [n] through `layers` -> hidden [n, hidden].

        Each layer writes the rows' K and V to the buffer before it attends, so rows see each other's fresh KV
        and, everywhere else, whatever was placed there.
        """
        rows = ForwardRows(
            positions, self.rope.cos[positions][:, None], self.rope.sin[positions][:, None], hidden.dtype
        )
        for index in layers:
            if buffer.lacks is not None:
                buffer.lacks(index)
            layer = self.layers[index]
            q, k, v = self._project(layer, layer.input_norm(hidden), rows, partial(tap.kv, index) if tap else None)
            keys, values = buffer.k[index], buffer.v[index]  # [kv_heads, capacity, dim]
            keys.index_copy_(1, positions, k)
            values.index_copy_(1, positions, v)
            attended = tap.attend(index, q, keys, values) if tap else None
            if attended is None:
                attended = attend(q, keys, values, rows.blocks, self.scale)
            hidden = hidden + layer.output(attended)
            hidden = hidden + layer.mlp(layer.post_norm(hidden))
        return hidden

    def _project(
        self, layer: DecoderLayer, x: torch.Tensor, rows: ForwardRows, see: Callable[..., None] | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x [n, hidden] -> rotated q [heads, n, dim], rotated k and v [kv_heads, n, dim]."""
        fused = layer.qkv(x).view(len(x), self.heads + 2 * self.kv_heads, self.dim)
        qk, v = fused.split((self.heads + self.kv_heads, self.kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = qk.split((self.heads, self.kv_heads), dim=1)
            qk = torch.cat((layer.q_norm(q), layer.k_norm(k)), dim=1)
        turned = turn(qk, rows.cos, rows.sin)  # [n, heads + kv_heads, dim]
        rotated, values = turned[:, self.heads :].transpose(0, 1), v.transpose(0, 1)
        if see is not None:
            see(qk[:, self.heads :].transpose(0, 1), rotated, values)
        return turned[:, : self.heads].transpose(0, 1), rotated, values

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [n, hidden] -> float32 [n, vocabulary]."""
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits.float()
