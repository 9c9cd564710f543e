"""ChunkCache: prompts made of cached chunks, answered. The hot path is `prefill`: plan, load, link, store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
import torch

from ragcache.base import PromptCache
from ragcache.benefit import worthwhile
from ragcache.engine.torch.buffer import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.linked import TorchLinkedPrompt
from ragcache.errors import PromptError
from ragcache.generation import Generation
from ragcache.keeping import Keeper
from ragcache.linking import make_linker
from ragcache.linking.base import Linker, PlacedChunk, Positions
from ragcache.loader.sequential import LoadedChunk, SequentialLoader
from ragcache.planning import Plan, plan_prompt
from ragcache.rates import Rates, Work
from ragcache.report import Report
from ragcache.sampling import Sampling
from ragcache.store.base import KVStore
from ragcache.types import Segment


@dataclass(frozen=True)
class Prefilled:
    """A prompt's KV and the logits that its first answer token is drawn from."""

    plan: Plan
    buffer: KVBuffer
    logits: torch.Tensor  # [vocabulary] float32
    loaded: list[LoadedChunk]
    report: Report


class ChunkCache(PromptCache):
    """One engine, one store, a default linker. Threads may share it; each prompt has its own buffer."""

    def __init__(
        self,
        engine: TorchEngine,
        store: KVStore,
        linker: Linker | str = "auto",
        *,
        context_chunks: int = 3,
        loader: SequentialLoader | None = None,
        keep_missed: bool = True,
        keeper: Keeper | None = None,
        rates: Rates | None = None,
    ):
        """`rates`: with these, which learn from every prompt, chunks are linked only where that is predicted to be
        sooner than computing them; without, always.
        """
        super().__init__(engine, store, context_chunks, keep_missed, keeper)
        self.engine: TorchEngine = engine
        self.linker = make_linker(linker) if isinstance(linker, str) else linker
        self.loader = loader or SequentialLoader()
        self.rates = rates

    # -- answer -----------------------------------------------------------------------------------------------------

    def generate(
        self,
        segments: Sequence[Segment],
        *,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        linker: Linker | str | None = None,
        stop: frozenset[int] = frozenset(),
    ) -> Generation:
        """Stream the answer's tokens; `report` of the returned object is complete when the stream ends."""
        if max_tokens < 1:
            raise PromptError(f"max_tokens is {max_tokens}: ask for at least one token")
        start = perf_counter()
        chosen = self._chosen(linker)
        with self.answering():
            prefilled = self.prefill(segments, linker=chosen, room=max_tokens)
        if prefilled.plan.chunks:
            prefilled.report.incidents += self._told()
        # A linker that recomputes all looked nothing up: what it computed may well be stored.
        keeps = self.keep_missed and not chosen.recompute_all
        return Generation(
            self.engine,
            prefilled.buffer,
            len(prefilled.plan.ids),
            prefilled.logits,
            prefilled.report,
            start,
            max_tokens,
            sampling or Sampling(),
            self.engine.spec.eos | stop,
            partial(self._finish, segments, prefilled.report) if keeps else None,
            self.answering,
        )

    def prefill(self, segments: Sequence[Segment], *, linker: Linker | str | None = None, room: int = 1) -> Prefilled:
        """KV of the whole prompt, with `room` tokens left for the answer."""
        chosen = self._chosen(linker)
        started = perf_counter()
        found = plan_prompt(segments, self.engine.spec.fingerprint, self.store, lookup=not chosen.recompute_all)
        self.engine.check_tokens(found.ids)
        plan = found if self.rates is None else worthwhile(found, chosen, self.rates)
        report = Report(chosen.name, len(plan.ids), plan.question, len(plan.ids) - plan.question)
        report.declined = plan.declined
        report.seconds["plan"] = perf_counter() - started
        report.incidents += plan.incidents
        buffer = self.engine.buffer(len(plan.ids) + room)
        with report.stage("load"):
            loaded = self._load(plan, chosen, buffer, report)
        with report.stage("link"):
            work, logits = self._link(plan, chosen, buffer, loaded, report)
        if self.rates is not None:
            _learn(self.rates, chosen, loaded, work, report)
        return Prefilled(plan, buffer, logits, loaded, report)

    def _chosen(self, linker: Linker | str | None) -> Linker:
        if linker is None:
            return self.linker
        return make_linker(linker) if isinstance(linker, str) else linker

    def _load(self, plan: Plan, linker: Linker, buffer: KVBuffer, report: Report) -> list[LoadedChunk]:
        exact = True
        if linker.recompute_all:
            report.other_computed += len(plan.system)
        else:
            system = self.system_variant(plan.system, report)
            self.engine.place(buffer, system, 0)
            exact = system.lossless
        return self.loader.load(
            plan,
            self.store,
            lambda variant, start: self.engine.place(buffer, variant, start),
            report,
            system_exact=exact,
        )

    def _link(
        self, plan: Plan, linker: Linker, buffer: KVBuffer, loaded: list[LoadedChunk], report: Report
    ) -> tuple[Work, torch.Tensor]:
        """Select, repair, answer the question -> what was done, logits [vocabulary]."""
        missing = _missing(plan, loaded, linker.recompute_all)
        prompt = TorchLinkedPrompt(self.engine, buffer, plan.ids, plan.question, _placed(loaded), missing)
        selected = linker.select(prompt) if prompt.chunks else np.empty(0, dtype=np.int64)
        hidden = prompt.finish(selected)
        for entry in loaded:
            span, chunk = entry.planned.span, entry.report
            chunk.repaired = int(np.count_nonzero((selected >= span.start) & (selected < span.end)))
            chunk.reused -= chunk.repaired
            report.chunks.append(chunk)
        report.other_computed += sum(len(text) for text in plan.texts)
        report.charged = prompt.charged
        logits = self.engine.logits(hidden)[0]
        self.engine.synchronize()
        return prompt.work, logits


def _missing(plan: Plan, loaded: list[LoadedChunk], everything: bool) -> Positions:
    """Positions before the question that nothing was placed at."""
    gone = np.zeros(plan.question, dtype=bool)
    gone[: len(plan.system)] = everything
    for text in plan.texts:
        gone[text.start : text.end] = True
    for entry in loaded:
        if entry.candidate is None:
            gone[entry.planned.span.start : entry.planned.span.end] = True
    return np.flatnonzero(gone)


def _placed(loaded: list[LoadedChunk]) -> list[PlacedChunk]:
    return [entry.planned.placed(entry.candidate) for entry in loaded if entry.candidate is not None]


def _learn(rates: Rates, linker: Linker, loaded: list[LoadedChunk], work: Work, report: Report) -> None:
    """What was measured, for the prompts to come."""
    placed = sum(entry.report.tokens for entry in loaded if entry.candidate is not None)
    rates.observe(work, report.seconds["link"])
    rates.observe(Work(placed=placed), report.seconds["load"] - sum(entry.seconds for entry in loaded))
    for entry in loaded:
        rates.observe_load(entry.report.tier, entry.report.nbytes, entry.seconds)
    linked = (entry for entry in loaded if entry.candidate is not None and not entry.candidate.unchanged)
    repairable = sum(entry.report.tokens for entry in linked)
    rates.observe_link(repr(linker), repairable, report.repaired)
