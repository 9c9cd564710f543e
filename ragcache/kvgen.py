"""KVGen: the KV of every chunk of a document, captured once, in the context of the chunks before it."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import torch

from ragcache.engine.torch.attention import attention_weights, weighted_values
from ragcache.engine.torch.decoder import Tap
from ragcache.engine.torch.engine import EngineSpec, TorchEngine
from ragcache.errors import ConfigError, PromptError
from ragcache.scoring.profile import ProfileBuilder
from ragcache.types import Chunk, Segment, System, Variant, VariantKey

# Lead variants cost a second pass with little attention. A document of so many tokens can afford it: its plain prefill,
# whose attention grows with each token, takes about as long as both passes together (docs/benchmarks.md). In a shorter
# one the first use of a chunk at the head of a prompt captures it, after the answer.
LEAD_TOKENS = 5000
ROWS = 256  # query rows whose attention weights exist at once


class KVGen:
    """Runs documents behind one System segment. It computes; keeping is the store's part."""

    def __init__(self, engine: TorchEngine, context_chunks: int = 3):
        if context_chunks < 0:
            raise ConfigError(f"context_chunks is {context_chunks}: use 0 (each chunk alone) or more")
        self.engine = engine
        self.context_chunks = context_chunks

    def system(self, system: System) -> Variant:
        """The System segment's own KV: exact wherever it stands, since it always stands first."""
        return self._capture([], system, self.system_key(system))

    def system_key(self, system: System) -> VariantKey:
        """No System stands before it: a chunk of the same ids, which has one, is another entry."""
        return VariantKey(self.engine.spec.fingerprint, "", (), system.hash)

    def ingest(self, system: Variant, chunks: Iterable[Chunk]) -> Iterator[Variant]:
        """All variants that a document is worth: those of `document`, and from LEAD_TOKENS on each chunk's lead
        variant: the chunk right behind System, for prompts that it leads. All of its context is gone there, so any
        other variant has its largest error.
        """
        waiting: list[Chunk] = []  # chunks whose lead variant is still to come
        tokens = 0
        for variant in self.document(system, chunks):
            yield variant
            tokens += len(variant)
            if variant.key.context:
                waiting.append(Chunk(variant.ids))
            if tokens >= LEAD_TOKENS:
                yield from (self.capture(system, [], lead) for lead in waiting)
                waiting = []

    def document(self, system: Variant, chunks: Iterable[Chunk]) -> Iterator[Variant]:
        """The chunks' variants in document order, each computed once over the *stored* KV of those before it."""
        context: deque[Variant] = deque(maxlen=self.context_chunks)
        for chunk in chunks:
            variant = self.capture(system, list(context), chunk)
            yield variant
            context.append(variant)

    def capture(self, system: Variant, context: Sequence[Variant], chunk: Chunk) -> Variant:
        """One chunk behind `system` and `context`, whose KV is taken as it is stored."""
        if not len(chunk):
            raise PromptError("an empty chunk has no KV: drop it when splitting")
        hashes = tuple(variant.key.chunk for variant in context)
        key = VariantKey(self.engine.spec.fingerprint, system.key.chunk, hashes, chunk.hash, _history(context))
        return self._capture([system, *context], chunk, key)

    def _capture(self, before: list[Variant], segment: Segment, key: VariantKey) -> Variant:
        self.engine.check_tokens(segment.ids)
        lengths = [len(variant) for variant in before]
        start = sum(lengths)
        buffer = self.engine.buffer(start + len(segment))
        place = 0
        for variant in before:
            self.engine.place(buffer, variant, place)
            place += len(variant)
        positions = range(start, start + len(segment))
        tap = CaptureTap(self.engine.spec, self.engine.decoder.scale, lengths, positions)
        self.engine.compute(segment.ids, positions, buffer, tap=tap)
        return Variant(key, segment.ids, tap.k, tap.v, tap.profile.build())


def _history(context: Sequence[Variant]) -> str:
    """Names what the context's KV saw beside itself; "" when each saw just the System and the context before it."""
    seen: list[str] = []
    for variant in context:
        if variant.key.history or variant.key.context != tuple(seen):
            return hashlib.sha256("\n".join(other.key.digest for other in context).encode()).hexdigest()
        seen.append(variant.key.chunk)
    return ""


class CaptureTap(Tap):
    """Keeps the rows' K before rotation and V, and attends by explicit weights, from which the profile is summed.

    The weights serve both the output and the profile, so profiling costs little more than attention itself.
    """

    def __init__(self, spec: EngineSpec, scale: float, lengths: Sequence[int], positions: range):
        shape = (spec.layers, spec.kv_heads, len(positions), spec.head_dim)
        self.k = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.v = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.profile = ProfileBuilder(lengths or (0,), len(positions), spec.layers)
        self._positions = torch.arange(positions.start, positions.stop, device=spec.device)
        self._scale = scale

    def kv(self, layer: int, k: torch.Tensor, rotated: torch.Tensor, v: torch.Tensor) -> None:
        self.k[layer], self.v[layer] = k, v

    def attend(self, layer: int, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        parts = []
        for start in range(0, q.shape[1], ROWS):
            rows = slice(start, start + ROWS)
            weights = attention_weights(q[:, rows], keys, self._positions[rows], self._scale)
            self.profile.add(weights, start)
            parts.append(weighted_values(weights, values))
        return torch.cat(parts)
