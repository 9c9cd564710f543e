"""A prompt on the torch engine: its KV by the link job, driven in a loop, then one token after the other over it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from ragcache.engine import Forecast, LinkSource, PromptRequest, TokenStream
from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.forward import TorchForward
from ragcache.engine.torch.linked import TorchLinkedPrompt
from ragcache.engine.torch.pieces import PiecesLoading
from ragcache.engine.torch.prefix import keep_prefix
from ragcache.engine.torch.sampler import Sampler, token_logprobs
from ragcache.errors import FAULTS
from ragcache.link_job import LinkJob
from ragcache.linkage import Linkage
from ragcache.loader import SYSTEM, PieceLost
from ragcache.planning import Plan, first_address, plan_prompt
from ragcache.policy import Rates, Terms, Work, plain_seconds
from ragcache.prefix import worth_linking
from ragcache.report import Report
from ragcache.sampling import TokenLogprobs
from ragcache.store.base import KVStore
from ragcache.timeline import LINK
from ragcache.types import Span


@dataclass(frozen=True)
class Prefilled:
    """A prompt's KV and the logits that its first answer token is drawn from."""

    plan: Plan
    buffer: KVBuffer
    logits: torch.Tensor  # [vocabulary] float32
    report: Report
    length: int  # tokens in the buffer
    copied: bool = False  # of another answer's, to the same prompt


def prefill(engine: TorchForward, prompt: PromptRequest, source: LinkSource) -> Prefilled:
    """KV of the whole prompt, with room left for the answer."""
    started = perf_counter()
    try:
        return _prefilled(engine, prompt, source, started)
    except PieceLost as lost:
        assert source.loader is not None, "who reads piece by piece loses none of its layers"
        made = _prefilled(engine, prompt, replace(source, loader=source.loader.whole), started)
        made.report.incidents += [told for told in lost.args if told not in made.report.incidents]
        return made


def prefill_together(engine: TorchForward, prompt: PromptRequest, source: LinkSource) -> Prefilled:
    """The same once for all answers that are asked for together."""
    if prompt.together is None:
        return prefill(engine, prompt, source)
    alike = (tuple(prompt.segments), prompt.linker.choosing)
    made, is_first = prompt.together.made(alike, lambda: prefill(engine, prompt, source))
    return made if is_first else _copied(engine, prompt, made)


def _copied(engine: TorchForward, prompt: PromptRequest, made: Prefilled) -> Prefilled:
    """Whoever decodes over the other writes behind the prompt alone."""
    started, length = perf_counter(), made.length
    buffer = engine.buffer(length + prompt.max_tokens)
    for mine, other in ((buffer.k, made.buffer.k), (buffer.v, made.buffer.v)):
        mine[:, :, :length] = other[:, :, :length]
    linkage = Linkage(made.plan, prompt.linker, first_address(made.plan, engine.spec.fingerprint))
    report = LinkJob(linkage, skip=length).unlinked()
    report.predicted, report.planned_s = made.report.predicted, None
    report.seconds["copy"] = perf_counter() - started
    return replace(made, buffer=buffer, report=report, copied=True)


def _prefilled(engine: TorchForward, prompt: PromptRequest, source: LinkSource, started: float) -> Prefilled:
    job = LinkJob(linkage_of(engine, prompt, source), started=started)
    plan, report = job.linkage.plan, job.report
    report.seconds["plan"] = perf_counter() - started
    buffer = engine.buffer(len(plan.ids) + prompt.max_tokens)
    with report.stage("load"):
        pieces = PiecesLoading(engine, job, buffer, source)
        pieces.place()
    with report.stage("link"), pieces.upper_layers():
        began = perf_counter()
        linked = TorchLinkedPrompt(engine, buffer, plan.ids, plan.tail, job.placed, job.missing)
        job.choose(linked)
        logits = engine.logits(linked.finish(job.rows, prompt.linker.focus))[0]
        report.charged = linked.charged
        engine.synchronize()
        job.note(LINK, SYSTEM, began, perf_counter(), Span(0, len(plan.ids)))
    pieces.tell(report)
    _count_uses(source.store, job)
    if source.rates is not None:
        took = perf_counter() - started
        with report.stage("learn"):
            _learn(source.rates, job, linked.work, pieces.placing)
            source.rates.observe_plan(plan.planned_s or 0.0, took)
    return Prefilled(plan, buffer, logits, report, len(plan.ids))


def linkage_of(engine: TorchForward, prompt: PromptRequest, source: LinkSource) -> Linkage:
    """What is planned for a prompt; nothing is read but headers, and nothing computed."""
    linker, name = prompt.linker, engine.spec.fingerprint
    plan = plan_prompt(prompt.segments, name, source.store, lookup=not linker.recompute_all)
    engine.check_tokens(plan.ids)
    overlaps = source.loader is not None and source.loader.overlaps
    if source.prefixes is not None and not linker.recompute_all:
        plan = source.prefixes.planned(plan, prompt.segments, source.rates, overlaps)
    if source.rates is not None:
        plan = worth_linking(plan, linker, source.rates, overlaps)
    return Linkage(plan, linker, first_address(plan, name))


def forecast(engine: TorchForward, prompt: PromptRequest, source: LinkSource) -> Forecast:
    """By a copy of what was learnt."""
    rates = None if source.rates is None else source.rates.copy()
    plan = linkage_of(engine, prompt, replace(source, rates=rates)).plan
    plain = None if rates is None else rates.first_token(plain_seconds(len(plan.ids), rates, Terms(known=plan.head)))
    return Forecast(plan, rates, plain)


def _count_uses(store: KVStore, job: LinkJob) -> None:
    """Of what was computed all the same, which nobody opened; and what those were worth that were."""
    with suppress(*FAULTS):  # no answer fails because of the order of eviction
        for key in job.passed:
            store.use(key)
        for key, worth in job.credits:
            store.credit(key, worth)


def _learn(rates: Rates, job: LinkJob, work: Work, placing: float) -> None:
    """What was measured, for the prompts to come."""
    rates.observe(work, job.report.seconds["link"])
    rates.observe(Work(placed=job.placed_tokens), placing)
    rates.observe_link(job.linkage.linker.choosing, *job.repair)


class TorchGeneration(TokenStream):
    """Each token is computed when it is asked for."""

    def __init__(
        self,
        engine: TorchForward,
        prompt: PromptRequest,
        prefilled: Prefilled,
        source: LinkSource,
        started: float,
        finish: Callable[[Report], None] | None = None,
    ):
        """`started`: when the request came; `finish` runs after the last token."""
        self.report = prefilled.report
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self._engine, self._prompt, self._source, self._finish = engine, prompt, source, finish
        self._plan = prefilled.plan
        sampler = Sampler(prompt.sampling, self._plan.ids)
        first = sampler.choose(prefilled.logits)
        self.report.ttft_s = perf_counter() - started
        self._stream = self._decode(prefilled, first, sampler)

    def __iter__(self) -> Iterator[int]:
        return self._stream

    def cancel(self) -> None:
        """The thread that would wait computes, and sees afterwards that it is to end."""

    def close(self) -> None:
        self._stream.close()  # it holds the buffer
        self.finish_reason = self.finish_reason or "cancelled"

    def _decode(self, prefilled: Prefilled, token: int, sampler: Sampler) -> Generator[int, None, None]:
        started, logits, asked = perf_counter(), prefilled.logits, self._prompt.sampling.logprobs
        stop = self._engine.spec.eos | self._prompt.stop
        while token not in stop:
            if asked is not None:
                self.logprobs.append(token_logprobs(logits, token, asked))
            self.tokens.append(token)
            yield token
            if self._is_enough:
                break
            if len(self.tokens) == self._prompt.max_tokens:
                self.finish_reason = "length"
                break
            with self._source.answering():
                position = prefilled.length + len(self.tokens) - 1
                logits = self._engine.logits(self._engine.compute([token], [position], prefilled.buffer))[0]
                token = sampler.choose(logits)
        self.finish_reason = self.finish_reason or "stop"
        self.report.answer_tokens = len(self.tokens)
        self.report.decode_s = perf_counter() - started
        if self._finish is not None:
            self._finish(self.report)
            if not prefilled.copied:  # or one prompt would have come twice
                keep_prefix(self._engine, self._prompt, self._source, self._plan, self.tokens, self.report)
