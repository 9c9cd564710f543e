"""Is reuse exact on this model, device and number format? Identities 1 to 3 of the design, against transformers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ragcache.engine.agreement import tolerance
from ragcache.engine.torch.engine import TorchEngine
from ragcache.kvgen import KVGen
from ragcache.types import Chunk, System, spans_of

TOKENS = 120  # of the random prompt
GARBAGE = 10.0  # standard deviation of what lies in the buffer before: reading any of it shows


@dataclass(frozen=True)
class Check:
    """One identity, measured."""

    name: str
    error: float  # largest difference, relative to the largest value
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance  # false for nan


@dataclass(frozen=True)
class ReferenceRun:
    """A random prompt and what transformers computes for it."""

    ids: tuple[int, ...]
    logits: torch.Tensor  # [vocabulary], of the last token
    first_keys: torch.Tensor  # [kv_heads, n, head_dim], rotated, of layer 0


def self_check(engine: TorchEngine) -> list[Check]:
    """Takes a few short prefills; nothing is stored."""
    reference = _reference(engine)
    allowed = tolerance(engine.spec.dtype)
    errors = {
        "spans recomputed over garbage equal a prefill": _difference(_repair(engine, reference.ids), reference.logits),
        "a chunk behind its own context equals a prefill": _difference(_reuse(engine, reference.ids), reference.logits),
        "K moved to another position equals K computed there": _moved(engine, reference),
    }
    return [Check(name, error, allowed) for name, error in errors.items()]


@torch.inference_mode()
def _reference(engine: TorchEngine) -> ReferenceRun:
    count = min(TOKENS, engine.spec.max_tokens)
    ids = torch.randint(0, engine.spec.vocabulary, (count,), generator=torch.Generator().manual_seed(0))
    out = engine.stock()(ids[None].to(engine.spec.device), use_cache=True)
    return ReferenceRun(tuple(ids.tolist()), out.logits[0, -1].float(), out.past_key_values.layers[0].keys[0])


def _repair(engine: TorchEngine, ids: tuple[int, ...]) -> torch.Tensor:
    """Prefill, spoil about half of it in spans of all lengths, recompute these at once -> logits [vocabulary]."""
    buffer = engine.buffer(len(ids))
    engine.compute(ids, range(len(ids)), buffer)
    rows = np.flatnonzero(np.random.default_rng(0).random(len(ids)) < 0.5)
    rows = np.union1d(rows, [len(ids) - 1])
    for span in spans_of(rows):
        buffer.k[:, :, span.start : span.end].normal_(0, GARBAGE)
        buffer.v[:, :, span.start : span.end].normal_(0, GARBAGE)
    return engine.logits(engine.compute([ids[row] for row in rows], rows.tolist(), buffer))[0]


def _reuse(engine: TorchEngine, ids: tuple[int, ...]) -> torch.Tensor:
    """System and two chunks captured and placed, the rest computed over them -> logits [vocabulary]."""
    kvgen = KVGen(engine)
    first, second, third = (len(ids) * part // 6 for part in (1, 3, 5))
    system = kvgen.system(System(ids[:first]))
    chunks = kvgen.document(system, [Chunk(ids[first:second]), Chunk(ids[second:third])])
    buffer, start = engine.buffer(len(ids)), 0
    for variant in (system, *chunks):
        engine.place(buffer, variant, start)
        start += len(variant)
    return engine.logits(engine.compute(ids[start:], range(start, len(ids)), buffer))[0]


def _moved(engine: TorchEngine, reference: ReferenceRun) -> float:
    """Capture the second half behind a few tokens, place it behind the first half; K of layer 0 has no context."""
    half = len(reference.ids) // 2
    kvgen, buffer = KVGen(engine), engine.buffer(len(reference.ids))
    variant = kvgen.capture(kvgen.system(System(reference.ids[:3])), [], Chunk(reference.ids[half:]))
    engine.place(buffer, variant, half)
    return _difference(buffer.k[0, :, half:], reference.first_keys[:, half:])


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())
