"""A decoder's weights, taken from transformers, and the one forward that everything runs through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import nn

from ragcache.engine.torch.attention import RowBlock, attend, row_blocks
from ragcache.engine.torch.buffer import KVBuffer
from ragcache.rope import Rope, turn

Module = Callable[[torch.Tensor], torch.Tensor]


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
