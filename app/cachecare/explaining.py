"""What the cache would do for a question: which chunks are there, computed behind what, and when the first token would
come. Nothing is computed for it but the vector of the question, and nothing is learnt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from app.answering.answerer import AnswerRequest
from app.answering.pipeline import RagPipeline
from ragcache.engine import PromptRequest
from ragcache.planning import Candidate, Plan
from ragcache.rates import Rates, Work
from ragcache.report import COMPUTED

EXACT, SAME, SOME, ALONE, OTHER = ("exact", "same context", "other context", "no context", "other system")


@dataclass(frozen=True)
class ExplainedChunk:
    """One of the prompt, in its order."""

    number: int
    place: str  # of its text, for people
    tokens: int
    tier: str  # that would bring its KV, or COMPUTED
    variant: str  # what its KV was computed behind; "" where there is none
    variants: int  # that are there
    overlap: float  # β', of its context
    passed: bool  # it is there, and computing it is sooner
    bring_s: float | None  # and to place it
    compute_s: float | None  # in its place in full


@dataclass(frozen=True)
class Explanation:
    question: str
    linker: str
    tokens: int
    chunks: tuple[ExplainedChunk, ...]
    system: str  # tier of the System segment's KV, or COMPUTED
    prefix_tokens: int  # of exact prefixes, such as earlier turns
    planned_s: float | None  # to the first token, behind the finding of chunks; None where the engine does not foretell
    plain_s: float | None  # without cache
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain(pipeline: RagPipeline, question: str) -> Explanation:
    """By the pipeline's settings. Raises PromptError and CatalogError as an answer would."""
    settings, answering = pipeline.settings, pipeline.answering
    found = pipeline.search(question)
    request = AnswerRequest(question, found.chunks, max_tokens=settings.max_tokens, order=settings.prompt_order)
    prompt = answering.prompt(request)
    linker, gated = pipeline.linker_of(pipeline.library.catalog.collections.get(settings.collection))
    cache = answering.cache
    foretold = cache.engine.forecast(PromptRequest(prompt.segments, linker, 1), cache.source)
    plan = foretold.plan
    sources = {one.source for one in prompt.placed}
    places = [one.place_among(sources) for one in prompt.placed]
    return Explanation(
        question,
        linker.name,
        len(plan.ids),
        tuple(_explained(plan, places, foretold.rates)),
        plan.system_infos[0].tier if plan.system_infos else COMPUTED,
        sum(len(block.span) for block in plan.prefix),
        plan.planned_s,
        foretold.plain_s,
        (*found.notes, *prompt.notes, *gated, *plan.incidents),
    )


def _explained(plan: Plan, places: list[str], rates: Rates | None) -> Iterator[ExplainedChunk]:
    for chunk, place in zip(plan.chunks, places, strict=True):
        best = chunk.candidates[0] if chunk.candidates else chunk.passed
        span = chunk.span
        yield ExplainedChunk(
            chunk.index + 1,
            place,
            len(chunk.segment),
            chunk.candidates[0].info.tier if chunk.candidates else COMPUTED,
            "" if best is None else _variant(best),
            len(chunk.candidates) or int(best is not None),
            0.0 if best is None else best.reuse.beta_adjusted,
            chunk.passed is not None,
            None if rates is None or best is None else rates.bring_seconds(best.info.tier, best.info.nbytes, len(span)),
            None if rates is None else rates.seconds(Work.of_rows(span.start, span.end)),
        )


def _variant(found: Candidate) -> str:
    if found.system_gone:
        return OTHER
    if found.exact:
        return EXACT
    if found.unchanged:
        return SAME
    return SOME if found.info.key.context else ALONE
