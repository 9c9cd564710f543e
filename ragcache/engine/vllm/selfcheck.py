"""Does this model turn K, attend and keep KV as linking assumes? Asked of the model itself when vLLM starts, before any
request: all blocks of the paged cache are free, and what is left in them nobody reads. The passes warm up as well:
modules that run one by one compile themselves at their first call, and again at the second of another length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.distributed import get_tensor_model_parallel_world_size, tensor_model_parallel_all_reduce
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

from ragcache.engine.agreement import closeness, row_errors, sampled_positions, tolerance, wrong_turn
from ragcache.engine.torch.attention import attention_weights, weighted_values
from ragcache.engine.vllm.orders import Probe, PromptRows
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import ModelError
from ragcache.loader import Block

TOKENS = 48  # of the random prompt
GARBAGE = 10.0  # standard deviation of what lies in the cache before: reading any of it shows
PROBED = 2  # layers


@dataclass(frozen=True)
class LayerCall:
    """What one layer's attention was given; rows in prompt order."""

    turned: list[torch.Tensor]  # K that went into RoPE since the layer before [n, kv_heads * head_dim]
    q: torch.Tensor  # [heads, n, head_dim]
    k: torch.Tensor  # [kv_heads, n, head_dim]
    v: torch.Tensor  # [kv_heads, n, head_dim]

    @property
    def unrotated(self) -> torch.Tensor:
        """[kv_heads, n, head_dim]"""
        return self.turned[0].view(self.k.shape[1], len(self.k), -1).transpose(0, 1)


class Witness:
    """Keeps all that a hooked pass shows."""

    def __init__(self) -> None:
        self.calls: list[LayerCall] = []
        self.outputs: list[torch.Tensor] = []  # per layer [n, heads * head_dim]
        self._turned: list[torch.Tensor] = []

    def unrotated(self, k: torch.Tensor) -> None:
        self._turned.append(k.clone())  # RoPE may write in place

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        self.calls.append(LayerCall(self._turned, q.clone(), k.clone(), v.clone()))
        self._turned = []


def check_spans(spans: SpanRunner) -> None:
    """Raises ModelError, with the reasons, for a model whose linked KV would not be what it computes.

    On all ranks where it does on one: they run the same passes, and none waits for another that has given up.
    """
    for check in (_structure, _rotation, _passes):
        found = list(check(spans))
        ranks = tensor_model_parallel_all_reduce(torch.tensor([float(bool(found))], device=spans.device))
        if float(ranks) > 0:
            told = "; ".join(found) or "another rank has found why"
            raise ModelError(f"vLLM cannot link cached chunks with this model: {told}")


def _structure(spans: SpanRunner) -> Iterator[str]:
    """What a short random prompt may not show."""
    for index, layer in enumerate(spans.layers):
        for found, told in (
            (getattr(layer.impl, "alibi_slopes", None) is not None, "adds ALiBi to its scores"),
            (getattr(layer, "sliding_window", None) is not None, "attends through a sliding window"),
            (getattr(layer.impl, "logits_soft_cap", None), "caps its scores"),
            (getattr(layer, "has_sink", False), "has attention sinks"),
            (getattr(layer, "kv_sharing_target_layer_name", None), "reads the KV of another layer"),
            (getattr(layer, "attn_type", "decoder") != "decoder", "attends to more than what stands before"),
            (getattr(layer, "head_size_v", layer.head_size) != layer.head_size, "has K and V of two sizes"),
        ):
            if found:
                yield f"layer {index} {told}"
                return
    every = spans.config.compilation_config.static_forward_context.values()
    others = sum(isinstance(layer, AttentionLayerBase) for layer in every) - len(spans.layers)
    if others:
        yield f"{others} layers attend over no KV of their own"


def _rotation(spans: SpanRunner) -> Iterator[str]:
    """K turned by our tables against K as each layer gives it to its attention, all over the model's context."""
    places = sampled_positions(int(spans.config.model_config.max_model_len))
    witness = Witness()
    rows = PromptRows(random_ids(spans, len(places)), tuple(range(len(places))), free_blocks(spans, len(places)))
    spans.observe(rows, witness, places)
    if len(witness.calls) != len(spans.layers):
        yield (
            f"{len(witness.calls)} of its {len(spans.layers)} layers are called as modules, which captures and probes "
            "sit in on (none are where vLLM runs transformers' own code for it)"
        )
        return
    for index, call in enumerate(witness.calls):
        if len(call.turned) != 1:
            yield f"layer {index} turns K by RoPE {len(call.turned)} times, not once"
            return
        ours = spans.rope.rotate(call.unrotated, torch.tensor(places, device=call.k.device))
        wrong = wrong_turn(ours, call.k, places)
        if wrong is not None:
            yield (
                f"layer {index} turns K at position {wrong[0]} otherwise than standard RoPE does, by {wrong[1]:.1%}: "
                "it may rotate neighbouring dimensions, or change K after RoPE"
            )
            return


def _passes(spans: SpanRunner) -> Iterator[str]:
    yield from _Passes(spans).reasons()


class _Passes:
    """One random prompt, computed plainly and in parts."""

    def __init__(self, spans: SpanRunner):
        self._spans = spans
        limits = spans.config.scheduler_config
        self._ids = random_ids(
            spans, min(TOKENS, spans.config.model_config.max_model_len, limits.max_num_batched_tokens)
        )
        self._most_spans = int(limits.max_num_seqs)
        self._count = len(self._ids)
        self._blocks = free_blocks(spans, self._count)
        self._tolerance = tolerance(spans.config.model_config.dtype)

    def reasons(self) -> Iterator[str]:
        if self._count < 12:  # nobody links so short a prompt
            return
        self._spoil(range(self._count))
        plain, witness = self._plain(), Witness()
        with _outputs(self._spans.layers, witness):
            self._spans.observe(self._rows(range(self._count)), witness)
        yield from self._attention(witness)
        yield from self._probe(witness)
        rows, hidden = self._recomputed()
        yield from self._differs("spans that are computed again", hidden, plain[rows])
        start, hidden = self._linked()
        yield from self._differs("what follows a placed chunk", hidden, plain[start:])
        yield from self._moved(witness)

    def _attention(self, witness: Witness) -> Iterator[str]:
        positions = torch.arange(self._count, device=self._spans.device)
        for index, (call, output) in enumerate(zip(witness.calls, witness.outputs, strict=True)):
            weights = attention_weights(call.q, call.k, positions, self._spans.scale)
            error = float(row_errors(weighted_values(weights, call.v)[None], output[None]).max())
            if not error <= 2 * closeness(call.k.dtype):
                yield f"layer {index} attends otherwise than by a scaled softmax over K, by {error:.1%}"
                return

    def _probe(self, witness: Witness) -> Iterator[str]:
        """What the question reads, in two lengths, over the KV that the pass before has left."""
        calls = witness.calls[:PROBED]
        keys = torch.stack([call.k for call in calls])
        for question in (self._count // 2, self._count - 3):
            positions = torch.arange(question, self._count, device=self._spans.device)
            parts = [attention_weights(call.q[:, question:], call.k, positions, self._spans.scale) for call in calls]
            own = torch.stack([part[:, :, :question].mean(0) for part in parts]).mean(0)
            expected = tensor_model_parallel_all_reduce(own) / get_tensor_model_parallel_world_size()
            probe = Probe("", self._rows(range(question, self._count)), question, range(len(calls)), "mean")
            read = torch.from_numpy(self._spans.question_attention(probe, keys.clone()))
            error = float(row_errors(read[None, None], expected.mean(0).cpu()[None, None]).max())
            if not error <= self._tolerance:
                yield f"what a question reads is measured wrongly, by {error:.1%}"

    def _recomputed(self) -> tuple[list[int], torch.Tensor]:
        """Spoil two spans, a token and the end; compute them again."""
        parts = [range(2, 5), range(self._count // 3, self._count // 2), range(self._count - 2, self._count)]
        rows = [row for part in parts for row in part]
        for part in parts:
            self._spoil(part)
        together = [rows] if self._most_spans >= len(parts) else [list(part) for part in parts]
        return rows, torch.cat([self._spans.compute([self._rows(own)])[0] for own in together])

    def _linked(self) -> tuple[int, torch.Tensor]:
        """Capture System and a chunk behind it, place both over garbage -> where the rest starts, its hidden states."""
        first, second = self._count // 4, self._count * 2 // 3
        self._spoil(range(self._count))
        room = self._spans.room(self._count)
        for part in (range(first), range(first, second)):
            recorder = self._spans.recorder(room, [part.start] if part.start else [], len(part))
            self._spans.capture(self._rows(part), recorder)
            k, v, _ = recorder.result()
            self._spoil(part)
            self._spans.place(block := Block(part.start, 0, k, v), room)
            self._spans.write(room, [block.span], self._blocks)
        return second, self._spans.compute([self._rows(range(second, self._count))])[0]

    def _moved(self, witness: Witness) -> Iterator[str]:
        """The first layer's K and V before RoPE belong to the token alone, or they could not move."""
        half, other = self._count // 2, Witness()
        rows = PromptRows(self._ids[half:], tuple(range(self._count - half)), self._blocks)
        self._spans.observe(rows, other)
        for name, here, there in (
            ("K", other.calls[0].unrotated, witness.calls[0].unrotated[:, half:]),
            ("V", other.calls[0].v, witness.calls[0].v[:, half:]),
        ):
            error = float(row_errors(here, there).max())
            if not error <= 2 * closeness(here.dtype):
                yield f"{name} of the first layer depends on the position beyond RoPE, by {error:.1%}"

    def _differs(self, what: str, hidden: torch.Tensor, plain: torch.Tensor) -> Iterator[str]:
        # Rounding alone may give single tokens to another expert; what is computed wrongly is so in most rows.
        error = float(row_errors(hidden[None], plain[None]).median())
        if not error <= self._tolerance:
            yield f"{what} differs from a plain prefill by {error:.1%}"

    def _plain(self) -> torch.Tensor:
        return self._spans.compute([self._rows(range(self._count))])[0]

    def _rows(self, positions: Sequence[int]) -> PromptRows:
        return PromptRows(tuple(self._ids[row] for row in positions), tuple(positions), self._blocks)

    def _spoil(self, positions: range) -> None:
        room = self._spans.room(self._count)
        room.normal_(0, GARBAGE)
        self._spans.write(room, [slice(positions.start, positions.stop)], self._blocks)


def _outputs(layers: Sequence[Any], witness: Witness) -> ExitStack:
    def see(layer: Any, args: Any, output: torch.Tensor) -> None:
        witness.outputs.append(output.clone())

    hooks = ExitStack()
    for layer in layers:
        hooks.callback(layer.register_forward_hook(see).remove)
    return hooks


def random_ids(spans: SpanRunner, count: int) -> tuple[int, ...]:
    """The same on every rank."""
    return tuple(np.random.default_rng(0).integers(0, spans.config.model_config.get_vocab_size(), count).tolist())


def free_blocks(spans: SpanRunner, count: int) -> tuple[int, ...]:
    """Before any request all are."""
    return tuple(range(1, 1 + -(-count // spans.block_size)))  # vLLM gives block 0 to nobody
