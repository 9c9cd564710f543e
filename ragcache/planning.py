"""The plan: where every segment stands, and which variant serves each chunk."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ragcache.address import border_behind, check_border, is_prefix, lead_address, system_address
from ragcache.errors import PromptError, StoreError
from ragcache.linking.base import PlacedChunk
from ragcache.scoring import Prefix, Reuse, reuse_of
from ragcache.store.base import KVStore
from ragcache.store.findings import Flaw
from ragcache.types import Chunk, Segment, Span, System, VariantInfo, VariantKey

logger = logging.getLogger(__name__)

LEAST_CFO = 0.05
AHEAD = 64  # families that a far tier is asked for together


@dataclass(frozen=True)
class Candidate:
    """A stored variant, judged for one place in one prompt."""

    info: VariantInfo
    reuse: Reuse
    unchanged: bool  # computed behind just what stands before it here: a repair has nothing to mend
    exact: bool  # and nothing of it was lost at rest: it is what a plain prefill would hold
    system_gone: bool = False  # computed behind another System segment

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, float, bool, int]:
        """Exact first; then those whose context is the chunks before it, whatever stands between; then those that saw
        some context, then Cache-Craft's CFO (section 3.3), then a prefill's own, then the faster tier.

        CFO alone would take the variant without context, whose CCI is lowest, to be the most reusable. Behind other
        chunks it is the worst (docs/log.md): a chunk that saw any context is nearer to one that saw this context.
        Behind none but a text, it is the one that fits.
        """
        fits, key = self.reuse.exact, self.info.key
        return (
            not self.exact,
            not self.unchanged,
            not fits,
            not key.context,
            self.reuse.cfo(),
            bool(key.history),
            self.info.level,
        )

    @property
    def worth(self) -> float:
        """A use of what is right as it is, whose CFO is 0, counts as many of what is computed whole."""
        return 1 / max(LEAST_CFO, self.reuse.cfo())

    def fetched(self, lossless: bool) -> Candidate:
        """As it turned out to be: the copy that was brought may have been rounded where the one looked up was not."""
        return self if lossless else replace(self, exact=False)


@dataclass(frozen=True)
class PlannedChunk:
    """A chunk at its place, with all variants that could serve it, best first; none is a miss."""

    index: int
    segment: Chunk
    span: Span
    candidates: tuple[Candidate, ...]
    passed: Candidate | None = None  # the one that would serve, where computing the chunk is sooner

    def placed(self, found: Candidate) -> PlacedChunk:
        """As linkers see it once this variant stands there."""
        place, profile = (self.index, self.span.start, len(self.segment)), found.info.profile
        return PlacedChunk(*place, profile, found.reuse, found.unchanged, found.system_gone)


@dataclass(frozen=True)
class PrefixBlock:
    """A stored block of what the prompt begins with, at the one place where it can stand."""

    span: Span  # positions that it is placed at: what stands before it there is left to that
    start: int  # position of its first token
    info: VariantInfo


@dataclass(frozen=True)
class Plan:
    ids: tuple[int, ...]
    system: System | None  # whose KV stands first, and that of the chunks was computed behind
    chunks: tuple[PlannedChunk, ...]
    texts: tuple[Span, ...]  # between the chunks, a System segment that does not stand first among them
    question: int  # first position after the last chunk
    head: int = 0  # end of the System segment where it stands first, else 0
    incidents: tuple[str, ...] = ()  # what the store could not tell
    declined: int = 0  # cached tokens that are computed all the same, since linking them would be no sooner
    planned_s: float | None = None  # to the first token, where rates foretell it
    system_exact: bool = True  # the stored System segment has lost nothing at rest, or is to be computed
    system_infos: tuple[VariantInfo, ...] = ()  # of it, where it stands first: one, or none
    prefix: tuple[PrefixBlock, ...] = ()  # right behind System and exact chunks, in a row; what they cover is exact

    @property
    def cached(self) -> tuple[PlannedChunk, ...]:
        """Chunks that a stored variant could serve."""
        return tuple(chunk for chunk in self.chunks if chunk.candidates)

    @property
    def prefix_end(self) -> int:
        return self.prefix[-1].span.end if self.prefix else 0

    @property
    def tail(self) -> int:
        """First position that is computed in any case: behind the last chunk, and all that is stored of the front."""
        return max(self.question, self.prefix_end)

    @property
    def exact_until(self) -> int:
        """End of the leading segments whose KV is that of a plain prefill, and for everybody: System, and exact chunks
        right behind it.
        """
        if not self.system_exact or (self.system and self.system.border):
            return 0
        end = self.head
        for chunk in self.chunks:
            exact = chunk.candidates and chunk.candidates[0].exact and not chunk.segment.border
            if chunk.span.start != end or not exact:
                break
            end = chunk.span.end
        return end


def plan_prompt(
    segments: Sequence[Segment], fingerprint: str, store: KVStore, *, lookup: bool = True, others: bool = True
) -> Plan:
    """Segments may stand in any order. A chunk that ends a prompt is computed as its question is, since the answer
    begins there, and one that opens a prompt with a System segment further on as a text.

    `others`: a chunk that has no variant behind the prompt's System segment is served by those behind others.

    Raises PromptError for a prompt without tokens, or with two System segments.
    """
    system = check_segments(segments)
    leads = segments[0] is system and len(segments) > 1  # alone, it is what the answer begins behind
    behind, border = (system.hash, system.border) if system else ("", "")
    chunks: list[PlannedChunk] = []
    texts: list[Span] = []
    prefix = Prefix()
    stored: dict[Chunk, list[VariantInfo]] = {}  # one that comes again is looked up once
    incidents: list[str] = []
    first = system_address(fingerprint, behind, border)
    ahead = LookAhead(store, _families(segments, fingerprint, behind, border, [first.family] if leads else []))
    if lookup and leads:
        ahead.reach(first.family)
    infos = _system_infos(store, first, incidents) if lookup and leads else []
    exact = all(info.lossless for info in infos)
    start = head = question = len(segments[0]) if leads else 0
    for place, segment in enumerate(segments[leads:], int(leads) + 1):
        span = Span(start, start + len(segment))
        start = span.end
        # A chunk that opens a prompt has KV from amid one, and no token would be left that others rest their eyes on.
        is_opening = not span.start and system is not None
        if isinstance(segment, Chunk) and place < len(segments) and not is_opening:
            if lookup and segment not in stored:
                key = lead_address(fingerprint, behind, segment.hash, border_behind(border, segment))
                ahead.reach(key.family)
                stored[segment] = stored_variants(store, key, incidents, others=others)
            is_behind_text = bool(texts) or (system is not None and not leads)
            here = ChunkSurroundings(prefix, behind, text_before=is_behind_text, system_exact=exact)
            found = candidates(stored.get(segment, ()), here)
            chunks.append(PlannedChunk(len(chunks), segment, span, found))
            prefix.append(segment.hash)
            question = span.end
        else:
            texts.append(span)
    ids = tuple(chain.from_iterable(segment.ids for segment in segments))
    between = tuple(text for text in texts if text.end <= question)
    told = tuple(incidents)
    return Plan(
        ids, system, tuple(chunks), between, question, head, told, system_exact=exact, system_infos=tuple(infos)
    )


class LookAhead:
    """Families that are looked up one after another: a far tier is asked for so many of them together, and for those of
    other prompts in between.
    """

    def __init__(self, store: KVStore, families: Iterable[str]):
        self._store, self._left = store, deque(dict.fromkeys(families))
        self._asked = set[str]()

    def reach(self, family: str) -> None:
        """It is looked up next."""
        while self._left and family not in self._asked:
            some = [self._left.popleft() for _ in range(min(AHEAD, len(self._left)))]
            self._asked.update(some)
            self._store.look_ahead(some)


def _families(segments: Sequence[Segment], fingerprint: str, system: str, border: str, first: list[str]) -> list[str]:
    """That a prompt looks up."""
    chunks = [one for one in segments if isinstance(one, Chunk)]
    keys = (lead_address(fingerprint, system, one.hash, border_behind(border, one)) for one in chunks)
    return [*first, *(key.family for key in keys)]


def first_address(plan: Plan, fingerprint: str) -> VariantKey | None:
    """Of the System segment, where it stands first."""
    system = plan.system
    return system_address(fingerprint, system.hash, system.border) if system and plan.head else None


def check_segments(segments: Sequence[Segment]) -> System | None:
    """The System segment, if there is one. Raises PromptError."""
    if not segments:
        raise PromptError("the prompt has no segments: give at least one")
    for place, segment in enumerate(segments):
        if not len(segment):
            raise PromptError(f"segment {place} ({type(segment).__name__}) is empty: leave it out")
        check_border(segment)
    systems = [place for place, segment in enumerate(segments) if isinstance(segment, System)]
    if len(systems) > 1:
        raise PromptError(f"segment {systems[1]} is a second System segment: a prompt has at most one")
    system = next((segment for segment in segments if isinstance(segment, System)), None)
    if system is not None and system.border and {segment.border for segment in segments} - {"", system.border}:
        raise PromptError(f"the System segment has the border {system.border!r}, and another segment another one")
    return system


@dataclass(frozen=True)
class ChunkSurroundings:
    """What stands before a chunk in the prompt."""

    prefix: Prefix
    system: str  # hash of the segment that stands somewhere before it; "" is none
    text_before: bool = False  # somewhere among them; or the System segment does not stand first
    system_exact: bool = True


def candidates(infos: Iterable[VariantInfo], place: ChunkSurroundings) -> tuple[Candidate, ...]:
    """Stored variants of a chunk, judged for this place, best first."""
    found = []
    for info in infos:
        context = info.key.context
        reuse = reuse_of(info.profile, context, place.prefix)
        system_gone = info.key.system != place.system
        unchanged = reuse.exact and not info.key.history and not place.text_before and not system_gone
        exact = unchanged and info.lossless and place.system_exact
        found.append(Candidate(info, reuse, unchanged, exact, system_gone))
    return tuple(sorted(found, key=lambda candidate: candidate.rank))


def _system_infos(store: KVStore, key: VariantKey, incidents: list[str]) -> list[VariantInfo]:
    flaws: list[Flaw] = []
    try:
        infos = store.variants(key.family, flaws)
    except StoreError:  # whoever loads it will tell, and it is computed
        return []
    incidents += [_flaw(flaw) for flaw in flaws]
    return infos


def stored_variants(
    store: KVStore, key: VariantKey, incidents: list[str], *, others: bool = False
) -> list[VariantInfo]:
    """Of the key's chunk behind its System segment; where there are none, `others`: behind other ones. What the store
    could not tell joins the incidents.
    """
    flaws: list[Flaw] = []
    look = store.nearby if is_prefix(key) else store.variants  # of exact prefixes there is nothing far
    try:
        infos = look(key.family, flaws)
        if not infos and others and key.system:
            infos = store.elsewhere(key, flaws)
    except StoreError as error:  # without the cache the answer is slower, not wrong
        logger.warning("cache not searched: %s", error)
        incidents.append(f"cache not searched: {error}")
        return []
    incidents += [_flaw(flaw) for flaw in flaws]
    return infos


def _flaw(flaw: Flaw) -> str:
    return f"cache entry not used: {flaw.reason}"
