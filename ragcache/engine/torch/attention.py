"""Causal attention of scattered rows over the KV buffer, and what a question reads by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F

from ragcache.linking.base import READ_TOKENS, Reduction
from ragcache.types import spans_of

APART = 128  # positions: what lies before a multiple of it does not hang on what follows, to the last bit
ROWS = 32  # rows per attention call: few enough to skip most of the future, enough to keep kernels busy
CUDA_ROWS = 256  # the same on a GPU, where a call takes longer than what it computes for so few
ALIGNED = 16  # values: as the rows of a mask must lie for a GPU's kernels, or each call would copy it
KERNEL_DIMS = 8  # of a head: multiples of it suit the GPU's kernel of scattered rows
# Kernels that are causal by themselves, however many keys lie before the first row; others would be given a mask.
RUNS_ON = {("cuda", torch.bfloat16), ("cuda", torch.float16)}
READ_ROWS = 256  # rows at most whose attention weights exist at once
READ_BYTES = 32 << 20  # at most, of all that exists for that: weights, their sum over heads, keys in float32
CUDA_READ_BYTES = 512 << 20  # the same on a GPU


@dataclass(frozen=True)
class RowBlock:
    """Rows [start, stop) of a forward, which see keys [0, end)."""

    start: int
    stop: int
    end: int
    # [rows, end] additive, or what names the kernel's own; None where every row sees every key, or `causal`.
    mask: torch.Tensor | None
    causal: bool  # rows are positions [0, end): the kernel's own mask serves


def row_blocks(positions: torch.Tensor, dtype: torch.dtype, size: int | None = None) -> list[RowBlock]:
    """Masks for ascending positions [n], made once and used by every layer.

    The mask is bottom-right causal per row: position p sees keys [0, p]. Rows need not be contiguous, so a repair's
    scattered spans, a prefill and a decoded token are all the same call. On RUNS_ON neighbours of `size` rows or more
    are one block, which needs no mask in memory, as are rows that are all neighbours.

    Rows that are neighbours are cut where their positions are multiples of `size`, and always of APART: in which order
    a row sums what it sees does not depend on where a prefill began, and a stored prefix goes on to the same bits.
    """
    size = size or (CUDA_ROWS if positions.is_cuda else ROWS)
    ends = (positions + 1).tolist()
    on_runs = (positions.device.type, dtype) in RUNS_ON
    if not on_runs and (even := _even_cuts(positions, size)):
        return [_block(positions, dtype, cut, ends[cut.stop - 1]) for cut in even]
    runs = list(_runs(ends, size)) if on_runs else []
    blocks, done = [], 0
    for start, stop in [*runs, (len(ends), len(ends))]:
        blocks += [_block(positions, dtype, cut, ends[cut.stop - 1]) for cut in _cuts(done, start, size)]
        if start < stop:
            from torch.nn.attention.bias import causal_lower_right  # brings torch's compiler, which takes 1.5 s

            end = ends[stop - 1]
            blocks.append(RowBlock(start, stop, end, causal_lower_right(stop - start, end), causal=False))
        done = stop
    return blocks


def _runs(ends: list[int], size: int) -> Iterator[tuple[int, int]]:
    """Rows [start, stop) of neighbours: `size` of them or more, or all, and at least two."""
    start = 0
    for span in spans_of(ends):
        if len(span) >= max(min(size, len(ends)), 2):
            yield start, start + len(span)
        start += len(span)


def _cuts(first: int, last: int, size: int) -> Iterator[slice]:
    # A block that is not full comes first, where it reads few keys: it is as dear as a full one.
    for before in range(last - -(-(last - first) // size) * size, last, size):
        yield slice(max(before, first), before + size)


def _even_cuts(positions: torch.Tensor, size: int) -> list[slice]:
    """None for scattered rows, of which a block takes as many as it can."""
    jumps = (positions.diff() != 1).nonzero().flatten() + 1
    starts = [0, *jumps.tolist(), len(positions)]
    if len(jumps) and size * (len(jumps) + 1) > len(positions):
        return []
    cuts = []
    for first, last in pairwise(starts):
        begin = int(positions[first])
        end = begin + last - first
        edges = deque(range(begin - begin % size + size, end, size))
        # What is not full joins its neighbour, since it is as dear as a full one.
        if edges and end - edges[-1] < size and edges[-1] % APART:
            edges.pop()
        if edges and edges[0] - begin < size and edges[0] % APART:
            edges.popleft()
        cuts += [slice(one - begin + first, other - begin + first) for one, other in pairwise((begin, *edges, end))]
    return cuts


def _block(positions: torch.Tensor, dtype: torch.dtype, rows: slice, end: int) -> RowBlock:
    count = rows.stop - rows.start
    whole, causal = count == 1, 1 < count == end
    mask = None if whole or causal else _mask(positions[rows], end, dtype)
    return RowBlock(rows.start, rows.stop, end, mask, causal)


def _mask(rows: torch.Tensor, end: int, dtype: torch.dtype) -> torch.Tensor:
    wide = -(-end // ALIGNED) * ALIGNED if rows.is_cuda else end
    future = torch.arange(wide, device=rows.device)[None, :] > rows[:, None]
    return torch.zeros(future.shape, dtype=dtype, device=rows.device).masked_fill_(future, float("-inf"))[:, :end]


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
        return F.scaled_dot_product_attention(folded, k[None], v[None], scale=scale).reshape(heads, 1, dim)
    if q.is_cuda and type(block.mask) is torch.Tensor:
        return attend_in_groups(q, k, v, block.mask, scale)
    return F.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=block.mask, is_causal=block.causal, scale=scale, enable_gqa=groups > 1
    )[0]


def attend_in_groups(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    """The kernels of a GPU that take a mask know no groups of heads, and what serves both writes all weights to memory.
    So the n-th heads of all groups are one of a batch, which all read the same keys.
    """
    heads, n, dim = q.shape
    groups = heads // k.shape[0]
    batch = q.view(k.shape[0], groups, n, dim).transpose(0, 1)
    keys, values = (part.expand(groups, *part.shape) for part in (k, v))
    if q.is_cuda and dim % KERNEL_DIMS == 0:
        # By name: cuDNN's, which PyTorch may choose instead, is planned anew for each shape that was not met before,
        # and a repair has one of its own in each block, 30 ms each.
        shared = mask.expand(*batch.shape[:3], mask.shape[1])
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        out: torch.Tensor = efficient(batch, keys, values, shared, False, scale=scale)[0]
    else:
        out = F.scaled_dot_product_attention(batch, keys, values, attn_mask=mask, scale=scale)
    return out.transpose(0, 1).reshape(heads, n, dim)


@dataclass(frozen=True)
class Attended:
    """What rows [start, stop) of a pass attend to."""

    start: int
    stop: int
    mean: torch.Tensor  # float32 [rows, end]: the softmax, mean over heads, up to the last of these rows
    attended: torch.Tensor | None  # [rows, heads * dim]: the attention's output, where values were given


def read_attention(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, scale: float, values: torch.Tensor | None = None
) -> Iterator[Attended]:
    """For profiles and probes: q [heads, n, dim] over k and values [kv_heads, capacity, dim], at positions [n].

    Takes READ_BYTES (on a GPU CUDA_READ_BYTES) at a time, whatever the rows, heads and positions, but no less than one
    row of one key head: 4 * positions * (2 * heads / kv_heads + dim + 2) bytes, 5 MB of 16k positions in groups of 4
    heads of 64.
    """
    heads, n, dim = q.shape
    groups, first, nbytes = heads // k.shape[0], 0, CUDA_READ_BYTES if q.is_cuda else READ_BYTES
    places = positions.tolist()
    while first < n:
        last = min(first + READ_ROWS, n)
        # Bytes of one row of a key head: scores, their softmax, and of both sums over heads. Those of its keys: `dim`.
        fitting = nbytes // (4 * (places[last - 1] + 1))
        rows = slice(first, min(last, first + max(1, (fitting - dim) // (2 * groups + 2))))
        count = rows.stop - first
        together = max(1, (fitting - 2 * count) // (2 * groups * count + dim))
        span = range(places[first], places[rows.stop - 1] + 1)
        yield Attended(first, rows.stop, *_read_rows(q[:, rows], k, positions[rows], scale, values, together, span))
        first = rows.stop


def _read_rows(
    q: torch.Tensor,
    k: torch.Tensor,
    positions: torch.Tensor,
    scale: float,
    values: torch.Tensor | None,
    together: int,
    span: range,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`together`: so many key heads at a time. `span`: the positions lie in it -> mean over heads, what is attended."""
    groups, total, attended = q.shape[0] // k.shape[0], None, []
    for head in range(0, k.shape[0], together):
        own = slice(head, head + together)
        weights = attention_weights(q[head * groups : (head + together) * groups], k[own], positions, scale, span)
        total = weights.sum(0) if total is None else total.add_(weights.sum(0))
        if values is not None:
            attended.append(weighted_values(weights, values[own]))
    assert total is not None, "there is a head"
    return total.div_(q.shape[0]), torch.cat(attended, dim=1) if attended else None


def attention_weights(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, scale: float, span: range | None = None
) -> torch.Tensor:
    """The softmax itself: q [heads, n, dim], k [kv_heads, capacity, dim] at positions [n] -> float32 [heads, n, end],
    where end is the last position + 1. Few rows and heads at a time (`read_attention`), never on the decoding path.
    `span`, from the first position to the last, saves asking a GPU for them, which would wait for all that it does.
    """
    heads, n, dim = q.shape
    span = span or range(int(positions[0]), int(positions[-1]) + 1)
    first, end = span.start, span.stop
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


class QuestionSum:
    """Attention of the last READ_TOKENS of a question to each position before it, summed over layers.

    Holds 4 * READ_TOKENS bytes per position, 16 MiB of 16k positions, however long the question is.
    """

    def __init__(self, rows: Sequence[int], question: int, device: torch.device):
        """`rows`: positions of a pass, the question's last. `question`: its first position."""
        # Of the rows, the first one that is read.
        self.first = max(len(rows) - READ_TOKENS, sum(row < question for row in rows))
        self.total = torch.zeros((len(rows) - self.first, question), device=device)

    def add(self, first: int, read: Attended) -> None:
        """What rows of one layer read; `first`: which row of the pass is the first one that `read` counts from."""
        start = first + read.start - self.first
        assert start >= 0, (first, read.start, self.first)
        own = self.total[start : start + read.stop - read.start]
        own += read.mean[:, : own.shape[1]]

    def mean(self, layers: int) -> torch.Tensor:
        """Per token, mean over layers. [tokens, question]"""
        return self.total.div_(layers)


def reduced(attention: torch.Tensor, reduction: Reduction) -> torch.Tensor:
    """[tokens, question] -> [question]"""
    return attention.amax(0) if reduction == "max" else attention.mean(0)
