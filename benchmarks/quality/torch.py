"""Answering by the torch engine: the forced tokens go through the model in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import torch

from app.models.loading import TorchModel
from benchmarks.caches import memory_cache, prefill_prompt
from benchmarks.quality.answering import AnsweringEngine, FullAnswer, Linked
from benchmarks.quality.metrics import divergence
from benchmarks.timing import first_token
from ragcache.cache import ChunkCache
from ragcache.engine import PromptRequest
from ragcache.engine.torch.generation import Prefilled, TorchGeneration
from ragcache.report import Report
from ragcache.types import Segment


class TorchAnswering(AnsweringEngine):
    def __init__(self, parts: TorchModel, context: str, max_tokens: int):
        self.cache: ChunkCache = memory_cache(parts, context)
        self._engine = parts.engine
        self._template, self._max_tokens = parts.template, max_tokens

    def reference(self, segments: Sequence[Segment]) -> FullAnswer:
        made = prefill_prompt(self.cache, segments, "full", self._max_tokens)
        ids = self._free(made, made.logits)
        steps = min(len(ids) + 1, self._max_tokens)
        return FullAnswer(ids, self._template.decode(ids), self._forced(made, ids, steps))

    def linked(self, segments: Sequence[Segment], linker: str, full: FullAnswer) -> Linked:
        made = prefill_prompt(self.cache, segments, linker, self._max_tokens)
        forced = self._forced(made, full.ids, len(full.logits))
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
        return (*full.ids[:agreed], *self._free(prefilled, forced[agreed], agreed))

    def _free(self, prefilled: Prefilled, logits: torch.Tensor, start: int = 0) -> tuple[int, ...]:
        """Greedy tokens from the answer's token `start` on, the first of them by `logits`."""
        prompt = PromptRequest((), self.cache.linker, self._max_tokens - start, stop=self._template.stop)
        reached = replace(prefilled, logits=logits, length=len(prefilled.plan.ids) + start)
        return tuple(TorchGeneration(self._engine, prompt, reached, self.cache.source, perf_counter()))

    def _forced(self, prefilled: Prefilled, ids: Sequence[int], steps: int) -> torch.Tensor:
        """Logits of each step when the tokens before it are those of `ids`. [steps, vocabulary]"""
        engine, first = self._engine, prefilled.logits[None]
        if steps == 1:
            return first
        start = len(prefilled.plan.ids)
        fed = ids[: steps - 1]
        hidden = engine.compute(fed, range(start, start + len(fed)), prefilled.buffer, keep=len(fed))
        return torch.cat((first, engine.logits(hidden)))
