"""A prompt's KV on the torch engine: the link job, driven in a loop."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from ragcache.engine.base import LinkSource, PromptRequest
from ragcache.engine.torch.buffer import KVBuffer
from ragcache.engine.torch.linked import TorchLinkedPrompt
from ragcache.loader.base import SYSTEM, PieceLoaded
from ragcache.loader.sequential import SequentialLoader
from ragcache.policy.gate import worthwhile
from ragcache.policy.rates import Rates, Work
from ragcache.prompt.link_job import Linkage, LinkJob
from ragcache.prompt.planning import Plan, first_address, plan_prompt
from ragcache.report import Report

if TYPE_CHECKING:
    from ragcache.engine.torch.engine import TorchEngine


@dataclass(frozen=True)
class Prefilled:
    """A prompt's KV and the logits that its first answer token is drawn from."""

    plan: Plan
    buffer: KVBuffer
    logits: torch.Tensor  # [vocabulary] float32
    report: Report
    length: int  # tokens in the buffer


def prefill(engine: TorchEngine, prompt: PromptRequest, source: LinkSource) -> Prefilled:
    """KV of the whole prompt, with room left for the answer."""
    started = perf_counter()
    job = LinkJob(_linkage(engine, prompt, source))
    plan, report = job.linkage.plan, job.report
    report.seconds["plan"] = perf_counter() - started
    buffer = engine.buffer(len(plan.ids) + prompt.max_tokens)
    with report.stage("load"):
        placing = _load(engine, job, buffer, source)
    with report.stage("link"):
        linked = TorchLinkedPrompt(engine, buffer, plan.ids, plan.question, job.placed, job.missing)
        job.choose(linked)
        logits = engine.logits(linked.finish(job.rows))[0]
        report.charged = linked.charged
        engine.synchronize()
    if source.rates is not None:
        _learn(source.rates, job, linked.work, placing)
    return Prefilled(plan, buffer, logits, report, len(plan.ids))


def _linkage(engine: TorchEngine, prompt: PromptRequest, source: LinkSource) -> Linkage:
    linker, name = prompt.linker, engine.spec.fingerprint
    plan = plan_prompt(prompt.segments, name, source.store, lookup=not linker.recompute_all)
    engine.check_tokens(plan.ids)
    if source.rates is not None:
        plan = worthwhile(plan, linker, source.rates)
    return Linkage(plan, linker, first_address(plan, name))


def _load(engine: TorchEngine, job: LinkJob, buffer: KVBuffer, source: LinkSource) -> float:
    """Place what the loader brings -> the seconds of placing alone."""
    placing, loading = 0.0, (source.loader or SequentialLoader()).begin(job.pieces, source.store)
    try:
        for delivery in loading.deliveries():
            started, loaded = perf_counter(), delivery.loaded
            for block in delivery.blocks:
                engine.place_block(buffer, block)
            placing += perf_counter() - started
            if loaded is None:
                continue
            if source.rates is not None and (tier := job.planned_tier(loaded)):
                source.rates.observe_load(tier, loaded.nbytes, loaded.seconds)
            is_lacking = loaded.index == SYSTEM and loaded.chosen is None
            job.loaded(_computed_system(engine, job, buffer, source, loaded) if is_lacking else loaded)
    finally:
        loading.stop()
    return placing


def _computed_system(
    engine: TorchEngine, job: LinkJob, buffer: KVBuffer, source: LinkSource, loaded: PieceLoaded
) -> PieceLoaded:
    """It is computed at once and stored, for all prompts to come."""
    system, key = job.linkage.plan.system, job.linkage.system
    assert system is not None
    assert key is not None
    is_told = any(key.digest in told for told in job.report.incidents)  # by the plan
    incidents = [] if is_told else list(loaded.incidents)
    found = source.system(system, incidents, is_told or bool(incidents))
    engine.place(buffer, found.variant, 0)
    return PieceLoaded(SYSTEM, 0, found.tier, found.nbytes, found.variant.lossless, incidents=tuple(incidents))


def _learn(rates: Rates, job: LinkJob, work: Work, placing: float) -> None:
    """What was measured, for the prompts to come."""
    rates.observe(work, job.report.seconds["link"])
    rates.observe(Work(placed=job.placed_tokens), placing)
    rates.observe_link(repr(job.linkage.linker), job.repairable, job.report.repaired)
