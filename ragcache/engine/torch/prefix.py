"""Blocks of a prompt's exact prefix, computed again behind what is stored: a repair or a decoded token goes through
other kernels than a prefill, so what answered the prompt is not to the last bit what a prefill holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ragcache.engine import LinkSource, PromptRequest
from ragcache.engine.torch.forward import TorchForward
from ragcache.engine.torch.pieces import PiecesLoading
from ragcache.keeping import Pause
from ragcache.link_job import LinkJob
from ragcache.linkage import Linkage
from ragcache.linking.baselines import Naive
from ragcache.planning import Plan, first_address
from ragcache.prefix import BlockAddress
from ragcache.report import Report
from ragcache.store.held import copied
from ragcache.types import Variant


def keep_prefix(
    engine: TorchForward,
    prompt: PromptRequest,
    source: LinkSource,
    plan: Plan,
    answer: Sequence[int],
    report: Report,
) -> None:
    """After an answer, for prompts that begin alike."""
    if source.prefixes is not None:
        compute = partial(prefix_blocks, engine, source)
        source.prefixes.answered(plan, prompt.segments, answer, report, compute, prompt.era)


def prefix_blocks(
    engine: TorchForward,
    source: LinkSource,
    plan: Plan,
    blocks: Sequence[BlockAddress],
    pause: Pause | None,
    incidents: list[str],
) -> Iterator[Variant]:
    """Ascending. `plan` has exact KV alone; nothing comes where some of it turns out to have lost something."""
    until, system = blocks[-1].span.end, first_address(plan, engine.spec.fingerprint)
    job = LinkJob(Linkage(plan, Naive(), system, exact=len(plan.ids)))
    buffer = engine.buffer(len(plan.ids), apart=True)
    PiecesLoading(engine, job, buffer, replace(source, loader=None, rates=None)).place()
    incidents += job.report.incidents
    if not job.lossless:
        return
    rows = [row for row in job.missing.tolist() if row < until] + list(range(plan.tail, until))
    if rows:
        engine.compute_patiently([plan.ids[row] for row in rows], rows, buffer, pause=pause)
    for block in blocks:
        span = slice(block.span.start, block.span.end)
        yield block.variant(copied(buffer.k[:, :, span]), copied(buffer.v[:, :, span]))
