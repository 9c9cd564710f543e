"""Scattered rows of prompts through vLLM's own model, and cached KV into its paged cache.

A span [a, b) of a prompt is a pseudo-request: query length b - a, sequence length b, over the block row of the prompt.
Bottom-right causal masking is then exact, and since each layer writes its K and V before it attends, spans see each
other's fresh KV and, everywhere else, whatever was placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from vllm.distributed import get_tensor_model_parallel_world_size, get_tp_group, tensor_model_parallel_all_reduce
from vllm.forward_context import set_forward_context
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.attention.backend import CommonAttentionMetadata

from ragcache.engine.resources import Memory
from ragcache.engine.staging import Stage
from ragcache.engine.torch.attention import reduced
from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.vllm.attention_group import kernel_block_size, own_group
from ragcache.engine.vllm.checks import only_group
from ragcache.engine.vllm.joint_pass import Batch, JoinedForward, JoinedRows, KeyRooms, joined, room_beside, takes_rows
from ragcache.engine.vllm.orders import Probe, PromptRows
from ragcache.engine.vllm.taps import Listener, QuestionReader, Recorder, keeping, reading, recording
from ragcache.loader import Block
from ragcache.rope import Rope
from ragcache.types import FloatArray


class SpanRunner:
    """Runs on the worker, beside vLLM's model runner, between its forwards or along with one of them; of prompts it
    knows nothing.
    """

    def __init__(self, runner: Any, vllm_config: Any):
        """Raises ModelError for a KV cache that is not one group of plain attention layers."""
        self._runner = runner
        self.config = vllm_config
        self._memory = Memory()
        self.device = torch.device(runner.device)
        self._stage = Stage(self.device)
        kernel_block = kernel_block_size(runner)
        self._group = own_group(only_group(runner), vllm_config, self.device, kernel_block)
        layers = vllm_config.compilation_config.static_forward_context
        names = sorted(self._group.layer_names, key=extract_layer_index)
        self.layers = [layers[name] for name in names]
        self.block_size = int(self._group.kv_cache_spec.block_size)
        self._kernel_blocks = self.block_size // (kernel_block or self.block_size)
        model = vllm_config.model_config
        self.rope = Rope.from_config(model.hf_text_config, self.device, int(model.max_model_len))

    @property
    def model(self) -> Any:
        return self._runner.get_model()

    def slots(self, blocks: Sequence[int], positions: Sequence[int] | range) -> torch.Tensor:
        """Where the KV of these positions lies in the paged cache. [n]"""
        places = np.asarray(positions, dtype=np.int64)
        rows = np.asarray(blocks, dtype=np.int64)[places // self.block_size]
        return torch.from_numpy(rows * self.block_size + places % self.block_size).to(self.device)

    def room(self, positions: int) -> torch.Tensor:
        """For the rotated K and the V of a prompt [2, layers, kv_heads, positions, head_dim]; its memory is used again
        when it is gone.
        """
        spec = self._group.kv_cache_spec
        shape = (2, len(self.layers), spec.num_kv_heads, positions, spec.head_size)
        return self._memory.take(shape, self.config.model_config.dtype, self.device)

    @torch.inference_mode()
    def place(self, block: Block, room: torch.Tensor) -> None:
        """Into the prompt's room."""
        KVBuffer(room).place(self._stage.brought(block), self.rope)

    @torch.inference_mode()
    def write(
        self,
        room: torch.Tensor,
        placed: Iterable[slice],
        blocks: Sequence[int],
        skip: int = 0,
        layers: slice = slice(None),
    ) -> None:
        """What was placed in these layers, into the paged cache, save for the positions before `skip`, which are
        somebody's whose KV is right. Neighbours go together: a write costs the kernel's call in each layer more than
        its tokens.
        """
        for run in joined(placed, skip):
            slots, part = self.slots(blocks, run), room[:, layers, :, run.start : run.stop]
            for layer, keys, values in zip(self.layers[layers], *part, strict=True):
                self._write(layer, keys, values, slots)

    def _write(self, layer: Any, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
        keys, values = k.transpose(0, 1), v.transpose(0, 1)  # [n, kv_heads, head_dim]
        if self.device.type != "cpu":  # there the kernel minds every stride; others want a token's heads in one piece
            keys, values = keys.contiguous(), values.contiguous()
        layer.impl.do_kv_cache_update(layer, keys, values, layer.kv_cache, slots)

    @torch.inference_mode()
    def blank(self, positions: Sequence[int], blocks: Sequence[int], layers: range) -> None:
        """Zeros, in place of what somebody else left in these blocks."""
        slots = self.slots(blocks, positions)
        spec = self._group.kv_cache_spec
        shape = (spec.num_kv_heads, len(positions), spec.head_size)
        zeros = torch.zeros(shape, dtype=self.config.model_config.dtype, device=self.device)
        for layer in self.layers[layers.start : layers.stop]:
            self._write(layer, zeros, zeros, slots)

    @torch.inference_mode()
    def compute(
        self,
        prompts: Sequence[PromptRows],
        rooms: KeyRooms = MappingProxyType({}),
        before: Callable[[int], None] | None = None,
    ) -> list[torch.Tensor]:
        """Run the rows through the model, all prompts at once -> hidden of each prompt's rows [n, hidden]. `before`: is
        told of each layer before it writes.
        """
        batch = Batch.of(prompts)
        with self._keeping(batch, rooms, before):
            return self._scatter(batch, prompts, self._forward(batch, prompts, plain=True))

    def _keeping(
        self, batch: Batch, rooms: KeyRooms, before: Callable[[int], None] | None = None
    ) -> AbstractContextManager[None]:
        return keeping(self.layers, len(batch.order), list(batch.kept(rooms)), before)

    def room_beside(self, context: Any) -> int:
        """How many rows may join the forward that vLLM is about to run in this context."""
        limit = self.config.scheduler_config.max_num_batched_tokens
        return room_beside(self._group, context, limit) if takes_rows(self._runner) else 0

    def join(
        self,
        prompts: Sequence[PromptRows],
        rooms: KeyRooms,
        done: Callable[[float], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Compute the rows in the forward that vLLM is about to run; `done` is told their share of its seconds, or
        `failed` why it runs without them.
        """
        batch = Batch.of(prompts)
        kept = self._keeping(batch, rooms)
        JoinedForward(self.model, self._group, self._rows(batch, prompts), kept, done, failed)

    @torch.inference_mode()
    def question_attention(
        self, probe: Probe, keys: torch.Tensor, before: Callable[[int], None] | None = None
    ) -> FloatArray:
        """As LinkedPrompt.question_attention, of all ranks: they probe in the same step.

        `keys`: rotated K placed before [layers, kv_heads, positions, head_dim]; it is written. `before`: is told of
        each layer before it attends.
        """
        rows = probe.rows
        reader = QuestionReader(keys, rows.positions, probe.question, self.scale)
        size = self.config.scheduler_config.max_num_batched_tokens  # what vLLM has memory for at once
        for first in range(0, len(rows.ids), size):
            turn = slice(first, first + size)
            reader.turn(first)
            with keeping(self.layers[: probe.layers.stop], 0, (), before):
                self._read(PromptRows(rows.ids[turn], rows.positions[turn], rows.blocks), probe.layers, reader)
        # A mean over heads, so over ranks, before any maximum over tokens.
        attention = tensor_model_parallel_all_reduce(reader.mean()) / get_tensor_model_parallel_world_size()
        return np.asarray(reduced(attention, probe.reduction).cpu().numpy(), dtype=np.float32)

    def _read(self, rows: PromptRows, layers: range, reader: QuestionReader) -> None:
        batch = Batch.of([rows])
        with reading(self.layers[layers.start : layers.stop], batch.order, reader):
            self._forward(batch, [rows], plain=True)

    @torch.inference_mode()
    def observe(self, rows: PromptRows, listener: Listener, turned: Sequence[int] | None = None) -> None:
        """One span, which `listener` sits in on. `turned`: the positions that RoPE is told, where they are others."""
        with recording(self.model, self.layers, listener):
            self._forward(Batch.of([rows]), [rows], turned=turned)

    def recorder(self, room: torch.Tensor, lengths: Sequence[int], n: int) -> Recorder:
        """For a segment of n tokens behind those of these lengths that are placed in a prompt's room."""
        return Recorder(room, lengths, n, self.scale)

    @torch.inference_mode()
    def capture(self, rows: PromptRows, recorder: Recorder) -> None:
        """The segment's next rows."""
        recorder.begin(len(rows.ids))
        self.observe(rows, recorder)
        recorder.end()

    @property
    def ranks(self) -> int:
        return int(get_tp_group().world_size)

    def agreed(self, ready: bool) -> bool:
        """Whether all ranks are: a pass that one of them leaves out never ends on the others."""
        if self.ranks == 1:
            return ready
        all_ready = torch.tensor([ready], dtype=torch.int32)
        torch.distributed.all_reduce(all_ready, torch.distributed.ReduceOp.MIN, group=get_tp_group().cpu_group)
        return bool(all_ready)

    @property
    def scale(self) -> float:
        """Of the scores; the same in every layer, which the check at the start holds."""
        return float(self.layers[0].impl.scale)

    def _forward(
        self,
        batch: Batch,
        prompts: Sequence[PromptRows],
        *,
        plain: bool = False,
        turned: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """-> hidden in the batch's order [n, hidden]. A plain pass may run compiled; hooks on modules need them."""
        with self._context(batch, prompts, compiled=plain) as (ids, positions):
            if turned is not None:
                positions = torch.tensor(turned, device=self.device)
            hidden: torch.Tensor = self.model(
                input_ids=ids, positions=positions, intermediate_tensors=None, inputs_embeds=None
            )
        return hidden

    @contextmanager
    def _context(
        self, batch: Batch, prompts: Sequence[PromptRows], *, compiled: bool = False
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """vLLM's, in which its layers attend as the batch's rows do -> their ids and positions."""
        rows = self._rows(batch, prompts)
        metadata = self._group.build_metadata(rows.attention)
        names = self._group.layer_names
        with set_forward_context(
            dict.fromkeys(names, metadata),
            self.config,
            num_tokens=len(rows.ids),
            slot_mapping=dict.fromkeys(names, rows.attention.slot_mapping),
            skip_compiled=not compiled,
        ):
            yield rows.ids, rows.positions

    def _rows(self, batch: Batch, prompts: Sequence[PromptRows]) -> JoinedRows:
        # As vLLM's runners give them: a compiled model reads them as it was compiled to, and checks nothing.
        ids = torch.tensor(batch.gather([prompt.ids for prompt in prompts]), dtype=torch.int32, device=self.device)
        places = batch.gather([prompt.positions for prompt in prompts])
        positions = torch.tensor(places, dtype=torch.int64, device=self.device)
        return JoinedRows(ids, positions, self._common(batch, prompts, self._batch_slots(batch, prompts), positions))

    def _batch_slots(self, batch: Batch, prompts: Sequence[PromptRows]) -> torch.Tensor:
        parts = [self.slots(prompts[index].blocks, range(span.start, span.end)) for index, span, _ in batch.spans]
        return torch.cat(parts)

    def _common(
        self, batch: Batch, prompts: Sequence[PromptRows], slots: torch.Tensor, positions: torch.Tensor
    ) -> CommonAttentionMetadata:
        lengths = [len(span) for _, span, _ in batch.spans]
        ends = [span.end for _, span, _ in batch.spans]
        starts = torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32)
        seq_lens = torch.tensor(ends, dtype=torch.int32)
        return CommonAttentionMetadata(
            query_start_loc=starts.to(self.device),
            query_start_loc_cpu=starts,
            seq_lens=seq_lens.to(self.device),
            num_reqs=len(lengths),
            num_actual_tokens=len(slots),
            max_query_len=max(lengths),
            max_seq_len=max(ends),
            block_table_tensor=self._block_table(batch, prompts),
            slot_mapping=slots,
            causal=True,
            positions=positions,
            seq_lens_cpu_upper_bound=seq_lens,
        )

    def _block_table(self, batch: Batch, prompts: Sequence[PromptRows]) -> torch.Tensor:
        """A row per span. [spans, blocks]"""
        width = max(len(prompt.blocks) for prompt in prompts)
        rows = np.zeros((len(prompts), width), dtype=np.int32)
        for row, prompt in zip(rows, prompts, strict=True):
            row[: len(prompt.blocks)] = prompt.blocks
        if self._kernel_blocks > 1:  # the kernels' blocks are smaller than the scheduler's
            within = np.arange(self._kernel_blocks, dtype=np.int32)
            rows = (rows[:, :, None] * self._kernel_blocks + within).reshape(len(prompts), -1)
        return torch.from_numpy(rows[[index for index, _, _ in batch.spans]]).to(self.device)

    def _scatter(self, batch: Batch, prompts: Sequence[PromptRows], hidden: torch.Tensor) -> list[torch.Tensor]:
        rows = torch.empty_like(hidden)
        rows[torch.tensor(batch.order, device=self.device)] = hidden
        return list(rows.split([len(prompt.ids) for prompt in prompts]))
