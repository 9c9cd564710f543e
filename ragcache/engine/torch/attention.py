"""Causal attention of scattered rows over the KV buffer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

ROWS = 32  # rows per attention call: few enough to skip most of the future, enough to keep kernels busy


@dataclass(frozen=True)
class RowBlock:
    """Rows [start, stop) of a forward, which see keys [0, end)."""

    start: int
    stop: int
    end: int
    mask: torch.Tensor | None  # [rows, end] additive; None where every row sees every key, or `causal`
    causal: bool  # rows are positions [0, end): the kernel's own mask serves


def row_blocks(positions: torch.Tensor, dtype: torch.dtype, size: int = ROWS) -> list[RowBlock]:
    """Masks for ascending positions [n], made once and used by every layer.

    The mask is bottom-right causal per row: position p sees keys [0, p]. Rows need not be contiguous, so a repair's
    scattered spans, a prefill and a decoded token are all the same call.
    """
    ends = (positions + 1).tolist()
    blocks = []
    # A block that is not full comes first, where it reads few keys: it is as dear as a full one.
    for before in range(-(-len(ends) % size), len(ends), size):
        start, stop = max(before, 0), before + size
        end = ends[stop - 1]
        rows = positions[start:stop]
        whole = stop - start == 1
        causal = not whole and end == stop - start
        mask = None if whole or causal else _mask(rows, end, dtype)
        blocks.append(RowBlock(start, stop, end, mask, causal))
    return blocks


def _mask(rows: torch.Tensor, end: int, dtype: torch.dtype) -> torch.Tensor:
    future = torch.arange(end, device=rows.device)[None, :] > rows[:, None]
    return torch.zeros(future.shape, dtype=dtype, device=rows.device).masked_fill_(future, float("-inf"))


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, blocks: list[RowBlock], scale: float) -> torch.Tensor:
    """q [heads, n, dim] over k, v [kv_heads, capacity, dim] -> [n, heads * dim]."""
    heads, n, dim = q.shape
    out = torch.empty((n, heads, dim), dtype=q.dtype, device=q.device)
    for block in blocks:
        part = _attend_block(q[:, block.start : block.stop], k[:, : block.end], v[:, : block.end], block, scale)
        out[block.start : block.stop] = part.transpose(0, 1)
    return out.view(n, heads * dim)


def _attend_block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: RowBlock, scale: float) -> torch.Tensor:
    heads, n, dim = q.shape
    groups = heads // k.shape[0]
    if n == 1:
        # A decoded token: the heads of a group become rows of one key head, which reads each key once.
        folded = q.reshape(1, k.shape[0], groups, dim)
        return F.scaled_dot_product_attention(folded, k[None], v[None], scale=scale).view(heads, 1, dim)
    return F.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=block.mask, is_causal=block.causal, scale=scale, enable_gqa=groups > 1
    )[0]


def attention_weights(q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, scale: float) -> torch.Tensor:
    """The softmax itself, for profiles and probes: q [heads, n, dim], k [kv_heads, capacity, dim] at positions [n]
    -> float32 [heads, n, end], where end is the last position + 1. Few rows at a time, never on the decoding path.
    """
    heads, n, dim = q.shape
    end, first = int(positions[-1]) + 1, int(positions[0])
    # In float32 throughout: a score rounded to bfloat16 is off by some percent of its weight.
    folded = (q.float() * scale).reshape(k.shape[0], heads // k.shape[0] * n, dim)
    scores = torch.matmul(folded, k[:, :end].float().transpose(1, 2)).view(heads, n, end)
    # Only the columns behind the first row can be in the future of any row.
    future = torch.arange(first, end, device=q.device)[None, :] > positions[:, None]
    scores[:, :, first:].masked_fill_(future, float("-inf"))
    return torch.softmax(scores, dim=-1)


def weighted_values(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """weights [heads, n, end] over v [kv_heads, capacity, dim] -> [n, heads * dim]."""
    heads, n, end = weights.shape
    folded = weights.to(v.dtype).view(v.shape[0], heads // v.shape[0] * n, end)
    return torch.matmul(folded, v[:, :end]).view(heads, n, v.shape[2]).transpose(0, 1).reshape(n, -1)
