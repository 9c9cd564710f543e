"""Answering by the torch engine: the forced tokens go through the model in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from app.models.loading import TorchModel
from benchmarks.caches import memory_cache
from benchmarks.quality.answering import AnsweringEngine, FullAnswer, Linked
from benchmarks.quality.metrics import divergence
from benchmarks.timing import first_token
from ragcache.cache import ChunkCache
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.engine.torch.generation import Prefilled
from ragcache.report import Report
from ragcache.types import Segment


class TorchAnswering(AnsweringEngine):
    def __init__(self, parts: TorchModel, context: str, max_tokens: int):
        self.cache: ChunkCache = memory_cache(parts, context)
        self._template = parts.template
        self._forcing = ForcedAnswers(parts.engine, self.cache.source, max_tokens, self._template.stop)

    def reference(self, segments: Sequence[Segment]) -> FullAnswer:
        ids, logits = self._forcing.full(segments)
        return FullAnswer(ids, self._template.decode(ids), logits)

    def linked(self, segments: Sequence[Segment], linker: str, full: FullAnswer) -> Linked:
        made = self._forcing.prefilled(segments, self.cache.chosen(linker))
        forced = self._forcing.forced(made, full.ids, len(full.logits))
        text = self._template.decode(self._own(made, forced, full))
        return Linked(divergence(full.logits, forced), text, made.report.part)

    def first_token(self, segments: Sequence[Segment], linker: str) -> Report:
        return first_token(self.cache, segments, linker)

    def _own(self, prefilled: Prefilled, forced: torch.Tensor, full: FullAnswer) -> tuple[int, ...]:
        """Its own greedy answer: the full one's tokens as long as it chooses as the full recompute does, then its own.

        Both choices are taken from logits of the same shape: in bfloat16, a token that was decoded by itself may differ
        from the most probable one of a longer pass by rounding alone. Its own tokens are written over the forced ones
        in the buffer: no token attends to what is behind it.
        """
        same = (forced.argmax(-1) == full.logits.argmax(-1)).tolist()
        if all(same):
            return full.ids
        agreed = same.index(False)
        return (*full.ids[:agreed], *self._forcing.free(prefilled, forced[agreed], agreed))
