"""Which chunks of a prompt are sooner linked than computed: all of them, some, or none.

Nobody waits longer for a first token than without a cache, so whatever linking costs (loading, placing, a probe, the
steps of an engine that others decode in) is predicted from what was measured (`Rates`) and compared with a plain
prefill first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil
from typing import Literal

from ragcache.linking.base import Linker
from ragcache.linking.focus import probes
from ragcache.planning import Plan, PlannedChunk
from ragcache.rates import Rates, Work
from ragcache.slices import begins_pass, slices
from ragcache.store.findings import RAM
from ragcache.types import Span

__all__ = ["LinkWhen", "Rates", "Terms", "Work", "first_pass", "plain_seconds", "worthwhile"]

LinkWhen = Literal["sooner", "always"]  # where it is predicted to bring the first token sooner; wherever there is KV
# A link must be predicted to take at most so much of a prefill's time: predictions err by some percent.
MARGIN = 0.95
PROBE_DEPTH = 1.0  # of the layers, that a probe of the question passes through by default


@dataclass(frozen=True)
class Terms:
    """Under which a prompt is computed."""

    known: int = 0  # leading positions whose KV is there already
    pass_tokens: int | None = None  # most rows of one pass; None: all at once
    steps: int = 0  # further steps of the engine that a link takes
    step_seconds: float = 0.0  # that one of them takes, since others decode in it
    overlaps: bool = False  # the front is computed while the back is loaded
    focuses: bool = False  # by a probe, where the linker has a focus
    slice_tokens: int | None = None  # most of what is repaired in one such step; None: all of it
    apart: bool = False  # what is repaired takes passes of its own, which the question does not share


def worthwhile(plan: Plan, linker: Linker, rates: Rates, terms: Terms | None = None) -> Plan:
    """The plan with the variants that make the first token sooner, and when that will come; those left out are
    `declined`.
    """
    terms = terms or Terms()
    plain = plain_seconds(len(plan.ids), rates, terms)
    if not plan.cached:
        return replace(plan, planned_s=rates.first_token(plain))
    again = rates.link_share(linker.choosing)
    if terms.overlaps:  # the loader leaves out what is sooner computed
        # Nothing is computed ahead behind what is linked at once, so there each is judged by itself.
        reach = next((chunk.index for chunk in plan.chunks if _is_near(chunk)), len(plan.chunks))
        behind = (_kept(chunk, again, rates) for chunk in plan.chunks[reach:])
        linked = replace(plan, chunks=(*plan.chunks[:reach], *behind))
        link = _meeting_seconds(linked, linker, rates, terms, reach)
    else:
        linked = replace(plan, chunks=tuple(_kept(chunk, again, rates) for chunk in plan.chunks))
        link = _link_seconds(linked, linker, rates, terms)
    planned = link
    if link > MARGIN * plain:
        linked, planned = replace(plan, chunks=tuple(map(_passed, plan.chunks))), plain
    planned = rates.first_token(planned)
    before, after = _reusable(plan), _reusable(linked)
    if after == before:
        return replace(plan, planned_s=planned)
    rates.declined(linker.choosing, {chunk.candidates[0].info.tier for chunk in plan.chunks if chunk.candidates})
    return replace(linked, declined=before - after, planned_s=planned)


def _kept(chunk: PlannedChunk, again: float, rates: Rates) -> PlannedChunk:
    """Without its variants, where bringing the best of them takes longer than computing it."""
    if not chunk.candidates:
        return chunk
    best = chunk.candidates[0]
    bring = rates.bring_seconds(best.info.tier, best.info.nbytes, len(chunk.segment))
    saved = rates.seconds(Work.of_rows(chunk.span.start, chunk.span.end) * (1 - (0.0 if best.unchanged else again)))
    return chunk if bring < saved else _passed(chunk)


def _passed(chunk: PlannedChunk) -> PlannedChunk:
    return replace(chunk, candidates=(), passed=chunk.candidates[0]) if chunk.candidates else chunk


def plain_seconds(tokens: int, rates: Rates, terms: Terms) -> float:
    """Of a prefill of all of a prompt's tokens that is not known."""
    rows = Work.of_rows(terms.known, tokens)
    return rates.seconds(rows + Work(passes=_passes(rows.rows, terms)))


def _is_near(chunk: PlannedChunk) -> bool:
    """Whether it is linked before anything is read, and is not what a prefill would hold."""
    return bool(chunk.candidates) and chunk.candidates[0].info.tier == RAM and not chunk.candidates[0].exact


def _meeting_seconds(plan: Plan, linker: Linker, rates: Rates, terms: Terms, reach: int) -> float:
    """With so many of the first `reach` chunks computed, while the others are loaded, that both are soon done."""
    loads = [_load_seconds(chunk, rates) for chunk in plan.chunks]
    computed, left, known = 0.0, sum(loads), terms.known
    both, met = left, known
    chunks = zip(plan.chunks[:reach], loads, strict=False)
    for number, part, load in chain.from_iterable(_parts(chunk, known, load) for chunk, load in chunks):
        left -= load
        if part.end > known:
            computed += rates.seconds(Work.of_rows(max(known, part.start), part.end))
            computed += rates.seconds(Work(passes=1)) + terms.step_seconds if begins_pass(number) else 0.0
        if computed >= both:
            break
        if max(computed, left) < both:
            both, met = max(computed, left), max(known, part.end)
    rest = _link_seconds(plan, linker, rates, replace(terms, known=met)) - sum(loads)
    return max(0.0, rest) + both


def _parts(chunk: PlannedChunk, known: int, load: float) -> Iterator[tuple[int, Span, float]]:
    """What may be computed of a chunk, numbered from what is not known, and the seconds of loading that each saves."""
    parts = slices(chunk.span, chunk.candidates[0].info.tier) if chunk.candidates else [chunk.span]
    first = sum(part.end <= known for part in parts)
    for number, part in enumerate(parts, 1 - first):
        yield number, part, load * len(part) / len(chunk.span)


def _load_seconds(chunk: PlannedChunk, rates: Rates) -> float:
    if not chunk.candidates:
        return 0.0
    best = chunk.candidates[0].info
    return rates.load_seconds(best.tier, best.nbytes)


def _link_seconds(plan: Plan, linker: Linker, rates: Rates, terms: Terms) -> float:
    loads = sum(_load_seconds(chunk, rates) for chunk in plan.chunks)
    repaired = _repaired(plan, linker, rates, terms)
    slices = 1 if terms.slice_tokens is None else max(1, ceil(repaired / terms.slice_tokens))
    work = _linked(plan, linker, rates, terms)
    if terms.apart and repaired:
        work += Work(passes=slices)
    return rates.seconds(work) + loads + (terms.steps + slices - 1) * terms.step_seconds


def _repaired(plan: Plan, linker: Linker, rates: Rates, terms: Terms) -> float:
    """Tokens, by what this linker has computed again so far."""
    changed = (chunk.span for chunk in plan.cached if not chunk.candidates[0].unchanged)
    return rates.link_share(linker.choosing) * sum(max(0, span.end - max(span.start, terms.known)) for span in changed)


def first_pass(plan: Plan, linker: Linker, rates: Rates) -> Work:
    """What is computed over the lower layers of what is cached before its upper ones are needed."""
    if not _probes(plan, linker):
        return _linked(plan, linker, rates, Terms())
    return (Work.of_rows(plan.question, len(plan.ids)) + Work(passes=1)) * PROBE_DEPTH


def _probes(plan: Plan, linker: Linker, focuses: bool = False) -> bool:
    cached = [chunk.candidates[0] for chunk in plan.cached]
    asks = probes(linker, len(cached)) if focuses else linker.probes
    return asks and not all(best.unchanged for best in cached)


def _linked(plan: Plan, linker: Linker, rates: Rates, terms: Terms) -> Work:
    """What is left to do once all that is cached has been read."""
    known, again = terms.known, rates.link_share(linker.choosing)
    question = Work.of_rows(max(known, plan.question), len(plan.ids))
    work, missing = question, 0.0
    if _probes(plan, linker, terms.focuses):
        work += (question + Work(passes=1)) * PROBE_DEPTH
    covered = plan.head  # the System segment's own KV is as good as there
    for chunk in plan.chunks:
        start, end = max(chunk.span.start, known), max(chunk.span.end, known)
        rows = Work.of_rows(start, end)
        covered += len(chunk.segment)
        if not chunk.candidates:
            work, missing = work + rows, missing + rows.rows
            continue
        work += rows * (0.0 if chunk.candidates[0].unchanged else again) + Work(placed=rows.rows)
    texts = max(0, plan.question - covered)
    work += Work.of_rows(plan.question - texts, plan.question)
    return work + Work(passes=1 + _passes(missing + texts, terms))


def _passes(rows: float, terms: Terms) -> float:
    """Times that the weights are read for so many rows of a prompt."""
    if rows <= 0:
        return 0.0
    return 1.0 if terms.pass_tokens is None else float(-(-rows // terms.pass_tokens))


def _reusable(plan: Plan) -> int:
    return sum(len(chunk.segment) for chunk in plan.cached)
