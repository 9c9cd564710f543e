"""Answering by vLLM: every figure from requests as applications send them, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from app.models.loading import LoadedModel, VllmModel
from benchmarks.quality.answering import AnsweringEngine, FullAnswer, Linked
from benchmarks.quality.forcing import forced
from benchmarks.quality.metrics import divergence
from benchmarks.timing import check_tiers
from benchmarks.vllm_model import empty_store, vllm_cache
from benchmarks.vllm_requests import distributions
from ragcache.cache import ChunkCache
from ragcache.engine import TokenStream
from ragcache.report import FULL, Report
from ragcache.store.findings import RAM
from ragcache.types import Segment


class VllmAnswering(AnsweringEngine):
    def __init__(self, parts: LoadedModel, context: str, max_tokens: int):
        assert isinstance(parts, VllmModel), parts
        self.cache: ChunkCache = vllm_cache(parts.engine, empty_store(parts.settings), context)
        self._engine, self._template, self._max_tokens = parts.engine, parts.template, max_tokens
        self._stop = parts.engine.spec.eos | parts.template.stop

    def reference(self, segments: Sequence[Segment]) -> FullAnswer:
        ids, logprobs = self._distributions(segments, FULL, self._max_tokens, {}, stop_token_ids=sorted(self._stop))
        answer = tuple(token for token in ids if token not in self._stop)
        return FullAnswer(answer, self._template.decode(answer), logprobs)

    def linked(self, segments: Sequence[Segment], linker: str, full: FullAnswer) -> Linked:
        steps = len(full.logits)
        answer = (*full.ids, 0)[:steps]  # behind the last token it is the distribution alone that counts
        extra, settings = forced(answer)
        ids, logprobs = self._distributions(segments, linker, steps, extra, **settings)
        assert ids == answer, "vLLM left the answer that it was led along"
        generation = self._generate(segments, linker, self._max_tokens)
        text = self._template.decode(tuple(generation))
        check_tiers(linker, RAM, [generation.report])
        return Linked(divergence(full.logits, logprobs), text, generation.report.part)

    def first_token(self, segments: Sequence[Segment], linker: str) -> Report:
        generation = self._generate(segments, linker, 1)
        list(generation)
        return generation.report

    def _generate(self, segments: Sequence[Segment], linker: str, max_tokens: int) -> TokenStream:
        self._prepare()
        return self.cache.generate(segments, max_tokens=max_tokens, linker=linker, stop=self._template.stop)

    def _prepare(self) -> None:
        """Each prompt as the first one that vLLM sees: its prefix cache would answer the second full recompute."""
        self._engine.use_store(self.cache.store)
        self._engine.forget_prefixes()

    def _distributions(
        self, segments: Sequence[Segment], linker: str, max_tokens: int, extra: dict[str, Any], **settings: Any
    ) -> tuple[tuple[int, ...], torch.Tensor]:
        self._prepare()
        return distributions(self._engine, segments, linker, max_tokens, extra, **settings)
