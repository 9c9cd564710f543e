"""Rows of prompts as vLLM's attention takes them; they join a forward of vLLM's own, so that the weights are read once
for both: on a CPU that alone takes as long as twenty rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate
from time import perf_counter
from typing import Any

import torch
from torch.nn.functional import pad
from vllm.forward_context import get_forward_context, override_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata

from ragcache.engine.vllm.orders import PromptRows
from ragcache.errors import FAULTS
from ragcache.types import Span, spans_of

KeyRooms = Mapping[int, torch.Tensor]  # by prompt, of those whose K is kept: see SpanRunner.room


@dataclass(frozen=True)
class Batch:
    """The rows of several prompts as vLLM takes them. A batch is ordered by span length: some attention backends want
    the single rows, which they treat as decodes, first.
    """

    spans: list[tuple[int, Span, range]]  # (which prompt, its span, the rows of that prompt), in the batch's order
    order: list[int]  # per row of the batch, which of all prompts' rows it is, one prompt after the other

    @classmethod
    def of(cls, prompts: Sequence[PromptRows]) -> Batch:
        spans = []
        offsets = [0, *accumulate(len(prompt.ids) for prompt in prompts)]
        for index, prompt in enumerate(prompts):
            done = 0
            for span in spans_of(prompt.positions):
                spans.append((index, span, range(done, done + len(span))))
                done += len(span)
        spans.sort(key=lambda item: len(item[1]))
        return cls(spans, [offsets[index] + row for index, _, own in spans for row in own])

    def gather(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """One value per row and prompt -> in the batch's order."""
        return [rows[index][row] for index, _, own in self.spans for row in own]

    def kept(self, rooms: KeyRooms) -> Iterator[tuple[slice, torch.Tensor]]:
        """Of each span of a prompt that has a room: its rows in the batch, and where in the room their K goes."""
        done = 0
        for index, span, _ in self.spans:
            if index in rooms:
                yield slice(done, done + len(span)), rooms[index][0, :, :, span.start : span.end]
            done += len(span)


@dataclass(frozen=True)
class JoinedRows:
    """Spans of prompts as vLLM's model takes them."""

    ids: torch.Tensor
    positions: torch.Tensor
    attention: CommonAttentionMetadata

    def __len__(self) -> int:
        return len(self.ids)


def takes_rows(runner: Any) -> bool:
    """Whether rows may join the forwards of this model runner. On a GPU one may be a captured graph, and where prompts
    may hold pictures or embeddings it is given vectors in place of ids.
    """
    return runner.device.type == "cpu" and not (runner.supports_mm_inputs or runner.enable_prompt_embeds)


def room_beside(group: Any, context: Any, limit: int) -> int:
    """How many rows may join the forward that vLLM is about to run in this context; `limit`: what a forward takes in
    all. None where vLLM runs none, or one that it pads.
    """
    if not context.attn_metadata:
        return 0
    own = context.attn_metadata[group.layer_names[0]]
    tokens = int(own.num_actual_tokens)
    return limit - tokens if tokens == int(own.query_start_loc[-1]) else 0


class JoinedForward:
    """The next call of the model, vLLM's, computes our rows behind its own. It sees nothing of them."""

    def __init__(
        self,
        model: Any,
        group: Any,
        rows: JoinedRows,
        kept: AbstractContextManager[None],
        done: Callable[[float], None],
        failed: Callable[[Exception], None],
    ):
        """`kept`: entered for the forward. `done` is told the rows' share of its seconds, or `failed` why it ran
        without them.
        """
        self._group, self._rows, self._kept, self._done, self._failed = group, rows, kept, done, failed
        self._started: float | None = None
        self._within = ExitStack()
        self._within.callback(model.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
        self._within.callback(model.register_forward_hook(self._leave, always_call=True).remove)

    def _enter(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        try:
            joined = self._joined(kwargs)
        except FAULTS as error:  # the others' forward goes on
            self._within.close()
            self._failed(error)
            return None
        self._started = perf_counter()
        return args, joined

    def _joined(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        context, names = get_forward_context(), self._group.layer_names
        attention = _behind(context.attn_metadata[names[0]], self._rows.attention)
        mask = context.is_padding
        joined = replace(
            context,
            attn_metadata=dict.fromkeys(names, self._group.build_metadata(attention)),
            slot_mapping=dict.fromkeys(names, attention.slot_mapping),
            is_padding=None if mask is None else pad(mask, (0, len(self._rows)), value=False),
        )
        ids = torch.cat([kwargs["input_ids"], self._rows.ids])
        positions = torch.cat([kwargs["positions"], self._rows.positions])
        self._within.enter_context(override_forward_context(joined))
        self._within.enter_context(self._kept)
        return {**kwargs, "input_ids": ids, "positions": positions}

    def _leave(self, model: Any, args: tuple[Any, ...], hidden: torch.Tensor | None) -> torch.Tensor | None:
        self._within.close()
        if hidden is None or self._started is None:  # the forward broke, or runs without the rows
            return None
        self._done((perf_counter() - self._started) * len(self._rows) / len(hidden))
        return hidden[: -len(self._rows)]


def _behind(own: Any, rows: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The rows behind those of a forward that vLLM has described for a CPU's attention."""
    tokens, width = int(own.num_actual_tokens), max(own.block_table.shape[1], rows.block_table_tensor.shape[1])
    starts = torch.cat([own.query_start_loc, rows.query_start_loc[1:] + tokens])
    lengths = torch.cat([own.seq_lens, rows.seq_lens])
    tables = [pad(table, (0, width - table.shape[1])) for table in (own.block_table, rows.block_table_tensor)]
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        num_reqs=len(lengths),
        num_actual_tokens=tokens + rows.num_actual_tokens,
        max_query_len=max(own.max_query_len, rows.max_query_len),
        max_seq_len=max(own.max_seq_len, rows.max_seq_len),
        block_table_tensor=torch.cat(tables),
        slot_mapping=torch.cat([own.slot_mapping[:tokens], rows.slot_mapping]),
        causal=True,
        seq_lens_cpu_upper_bound=lengths,
    )


def joined(spans: Iterable[slice], skip: int) -> list[range]:
    """Spans, neighbours joined, without the positions before `skip`."""
    runs: list[range] = []
    for span in sorted(spans, key=lambda span: int(span.start)):
        start = max(span.start, skip)
        if runs and runs[-1].stop == start:
            runs[-1] = range(runs[-1].start, span.stop)
        elif start < span.stop:
            runs.append(range(start, span.stop))
    return runs
