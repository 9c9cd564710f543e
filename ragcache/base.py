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
        self, system: System, served: Sequence[tuple[PlannedChunk, Sequence[Candidate]]], report: Report
    ) -> None:
        """Capture and store what a prompt lacked. `served`: its chunks, each with the variants that serve it."""
        leads = _lacks_lead(system, served)
        if not leads and all(chunk.tier != COMPUTED for chunk in report.chunks):
            return
        with report.stage("keep"):
            behind = self.system_variant(system)
            if leads:
                self._keep(self.kvgen.capture(behind, [], served[0][0].segment), report.incidents)
            context: deque[Variant] = deque(maxlen=self.kvgen.context_chunks)
            for chunk, candidates in served:
                context.append(self._served(behind, list(context), chunk, candidates, report))

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


def _lacks_lead(system: System, served: Sequence[tuple[PlannedChunk, Sequence[Candidate]]]) -> bool:
    """Whether the first chunk stands right behind System, and is served by a variant that had chunks before it."""
    if not served:
        return False
    first, candidates = served[0]
    return first.span.start == len(system) and bool(candidates) and not candidates[0].unchanged
