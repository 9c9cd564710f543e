"""The plan: where every segment stands, and which variant serves each chunk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ragcache.errors import PromptError, StoreError
from ragcache.linking.base import PlacedChunk
from ragcache.scoring.reuse import Reuse, matches, reuse_of
from ragcache.store.base import Flaw, KVStore
from ragcache.types import Chunk, Segment, Span, System, Text, VariantInfo, VariantKey

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """A stored variant, judged for one place in one prompt."""

    info: VariantInfo
    reuse: Reuse
    exact: bool
    sources: tuple[int, ...]  # see PlacedChunk.sources

    @property
    def rank(self) -> tuple[bool, bool, float, bool]:
        """Exact first; then those that saw some context, then Cache-Craft's CFO (section 3.3), then the faster tier.

        CFO alone would take the variant without context, whose CCI is lowest, to be the most reusable. Behind other
        chunks it is the worst (docs/log.md): a chunk that saw any context is nearer to one that saw this context.
        """
        return (not self.exact, not self.info.key.context, self.reuse.cfo(), self.info.tier != "ram")


@dataclass(frozen=True)
class PlannedChunk:
    """A chunk at its place, with all variants that could serve it, best first; none is a miss."""

    index: int
    segment: Chunk
    span: Span
    candidates: tuple[Candidate, ...]

    def placed(self, found: Candidate) -> PlacedChunk:
        """As linkers see it once this variant stands there."""
        return PlacedChunk(
            self.index, self.span.start, len(self.segment), found.info.profile, found.reuse, found.exact, found.sources
        )


@dataclass(frozen=True)
class Plan:
    ids: tuple[int, ...]
    system: System
    chunks: tuple[PlannedChunk, ...]
    texts: tuple[Span, ...]  # between the chunks
    question: int  # first position after the last chunk
    incidents: tuple[str, ...] = ()  # what the store could not tell
    declined: int = 0  # cached tokens that are computed all the same, since linking them would be no sooner


def plan_prompt(segments: Sequence[Segment], fingerprint: str, store: KVStore, *, lookup: bool = True) -> Plan:
    """Raises PromptError for a prompt that is not System, chunks and texts, question."""
    system = _check(segments)
    chunks: list[PlannedChunk] = []
    texts: list[Span] = []
    prefix: list[str] = []
    incidents: list[str] = []
    start, question = len(system), len(system)
    for segment in segments[1:]:
        span = Span(start, start + len(segment))
        start = span.end
        if isinstance(segment, Chunk):
            key = VariantKey(fingerprint, system.hash, (), segment.hash)
            found = _candidates(store, key, prefix, bool(texts), incidents) if lookup else ()
            chunks.append(PlannedChunk(len(chunks), segment, span, found))
            prefix.append(segment.hash)
            question = span.end
        else:
            texts.append(span)
    ids = tuple(token for segment in segments for token in segment.ids)
    between = tuple(text for text in texts if text.end <= question)
    return Plan(ids, system, tuple(chunks), between, question, tuple(incidents))


def _check(segments: Sequence[Segment]) -> System:
    if not segments or not isinstance(segments[0], System):
        raise PromptError("a prompt starts with a System segment: put the application's shared prefix first")
    if not isinstance(segments[-1], Text):
        raise PromptError("a prompt ends with a Text segment: put the question after the chunks")
    for place, segment in enumerate(segments):
        if not len(segment):
            raise PromptError(f"segment {place} ({type(segment).__name__}) is empty: leave it out")
        if place and isinstance(segment, System):
            raise PromptError(f"segment {place} is a second System segment: a prompt has one, at its start")
    return segments[0]


def _candidates(
    store: KVStore, key: VariantKey, prefix: Sequence[str], text_before: bool, incidents: list[str]
) -> tuple[Candidate, ...]:
    flaws: list[Flaw] = []
    try:
        infos = store.variants(key.family, flaws)
    except StoreError as error:  # without the cache the answer is slower, not wrong
        logger.warning("cache not searched: %s", error)
        incidents.append(f"cache not searched: {error}")
        return ()
    incidents += [f"cache entry not used: {flaw.reason}" for flaw in flaws]
    found = []
    for info in infos:
        context = info.key.context
        reuse = reuse_of(info.profile, context, prefix)
        exact = reuse.exact and not info.key.history and not text_before
        found.append(Candidate(info, reuse, exact, (-1, *matches(context, prefix))))
    return tuple(sorted(found, key=lambda candidate: candidate.rank))
