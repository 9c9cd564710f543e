"""What every cache offers, so that an application serves whichever engine it was given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence

from ragcache.ingest import Ingest
from ragcache.loader.sequential import fetch
from ragcache.planning import Candidate, PlannedChunk
from ragcache.report import COMPUTED, Report
from ragcache.sampling import Sampling
from ragcache.types import Segment, System, Variant


class TokenStream(ABC):
    """An iterator over an answer's tokens, once. `report` is complete when it ends; `tokens` are those so far.

    One thread reads it. Reading raises ModelError when the engine breaks meanwhile.
    """

    report: Report
    tokens: list[int]

    @abstractmethod
    def __iter__(self) -> Iterator[int]: ...

    @abstractmethod
    def close(self) -> None:
        """End the answer here and free its prompt's KV; nothing happens when it has ended."""


class PromptCache(Ingest, ABC):
    """Captures chunks, and answers prompts that are made of them. Threads may share it."""

    @abstractmethod
    def generate(
        self,
        segments: Sequence[Segment],
        *,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        linker: str | None = None,
        stop: frozenset[int] = frozenset(),
    ) -> TokenStream:
        """Answer a prompt: greedily, and with the cache's own linker, unless others are given.

        Raises PromptError for a prompt that is malformed or too long, ConfigError for a linker that cannot be used.
        """

    def _keep_missed(
        self, system: System, stored: Sequence[tuple[PlannedChunk, Sequence[Candidate]]], report: Report
    ) -> None:
        """Capture and store what the store lacked. `stored`: the prompt's chunks, each with its variants there."""
        leads = _lacks_lead(system, stored) and not self._refused.skips(stored[0][0].segment.hash)
        needed = self._needed(stored, report)
        if not leads and not needed:
            return
        with report.stage("keep"):
            behind = self.system_variant(system)
            if leads:
                self._keep(self.kvgen.capture(behind, [], stored[0][0].segment), report.incidents)
            context: deque[Variant] = deque(maxlen=self.kvgen.context_chunks)
            for place in needed:
                context.append(self._served(behind, list(context), *stored[place], report))

    def _needed(self, stored: Sequence[tuple[PlannedChunk, Sequence[Candidate]]], report: Report) -> list[int]:
        """Places of the chunks that were computed and have no variant, and of those that they are captured behind."""
        computed = {chunk.chunk for chunk in report.chunks if chunk.tier == COMPUTED}
        lacking = {chunk.segment.hash for chunk, variants in stored if not variants} & computed
        wanted = {chunk for chunk in lacking if not self._refused.skips(chunk)}
        needed: list[int] = []
        before = 0  # chunks that the one behind still wants
        for place in range(len(stored) - 1, -1, -1):
            chunk, variants = stored[place]
            lacks = not variants and (before > 0 or chunk.segment.hash in wanted)
            if lacks or before > 0:
                needed.append(place)
            before = self.kvgen.context_chunks if lacks else before - 1
        return needed[::-1]

    def _served(
        self,
        system: Variant,
        before: list[Variant],
        chunk: PlannedChunk,
        candidates: Sequence[Candidate],
        report: Report,
    ) -> Variant:
        """The variant that serves a chunk, or a new one, stored."""
        for candidate in candidates:
            if (found := fetch(candidate, self.store, report)) is not None:
                return found.variant
        variant = self.kvgen.capture(system, before, chunk.segment)
        self._keep(variant, report.incidents)
        return variant


def _lacks_lead(system: System, stored: Sequence[tuple[PlannedChunk, Sequence[Candidate]]]) -> bool:
    """Whether the first chunk stands right behind System, and its best variant had chunks before it."""
    if not stored:
        return False
    first, variants = stored[0]
    return first.span.start == len(system) and bool(variants) and not variants[0].unchanged
