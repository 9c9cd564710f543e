"""What every cache offers, so that an application serves whichever engine it was given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from ragcache.engine.base import Engine
from ragcache.ingest import ChunkIngest
from ragcache.keeping import Keeper
from ragcache.kvgen import KVGen
from ragcache.loader.sequential import fetch
from ragcache.planning import Plan, PlannedChunk, plan_prompt
from ragcache.report import COMPUTED, Report
from ragcache.sampling import Sampling
from ragcache.store.base import KVStore
from ragcache.types import Segment, Variant


class TokenStream(ABC):
    """An iterator over an answer's tokens, once. `report` is complete when it ends; `tokens` are those so far.

    One thread reads it. Reading raises ModelError when the engine breaks meanwhile.
    """

    report: Report
    tokens: list[int]

    @abstractmethod
    def __iter__(self) -> Iterator[int]: ...

    @abstractmethod
    def cancel(self) -> None:
        """From any thread: end the answer here for whoever waits for its next token. Does not wait itself."""

    @abstractmethod
    def close(self) -> None:
        """End the answer here and free its prompt's KV; nothing happens when it has ended."""


class PromptCache(ChunkIngest, ABC):
    """Captures chunks, and answers prompts that are made of them. Threads may share it."""

    def __init__(self, engine: Engine, store: KVStore, context_chunks: int, keep_missed: bool, keeper: Keeper | None):
        """`keep_missed`: after an answer, capture and store the chunks that had to be computed for it: at once, or when
        the keeper finds the time.
        """
        super().__init__(engine, store, context_chunks)
        self.keep_missed = keep_missed
        self.keeper = keeper
        self._patient = KVGen(engine, context_chunks, keeper.pause if keeper else None)

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

    def answering(self) -> AbstractContextManager[None]:
        """While somebody waits for what is computed inside."""
        return self.keeper.answering() if self.keeper else nullcontext()

    def begin_answering(self) -> Callable[[], None]:
        """The same until what is returned is called."""
        return self.keeper.begin_answering() if self.keeper else lambda: None

    def _finish(self, segments: Sequence[Segment], report: Report) -> None:
        """After the last token of an answer."""
        if _lacked_nothing(report):
            return
        if self.keeper is None:
            self.keep(segments, report)
            return
        own = replace(report, seconds={}, incidents=[])  # the answer's may be read by now

        def later() -> list[str]:
            self.keep(segments, own)
            return own.incidents

        self.keeper.later(later)

    def _told(self) -> list[str]:
        """What went wrong after answers before: for the report of one over chunks, which somebody reads."""
        return self.keeper.take_told() if self.keeper else []

    def keep(self, segments: Sequence[Segment], report: Report) -> None:
        """Capture what the store lacks, so the next prompt finds it: chunks that were computed, each behind the chunks
        before it, and the lead variant of the first chunk.
        """
        plan = plan_prompt(segments, self.engine.spec.fingerprint, self.store)
        leads = _lacks_lead(plan) and not self._refused.skips(plan.chunks[0].segment.hash)
        needed = self._needed(plan, report)
        if not leads and not needed:
            return
        with report.stage("keep"):
            behind = self.system_variant(plan.system)
            if leads:
                self._keep(self._patient.capture(behind, [], plan.chunks[0].segment), report.incidents)
            context: deque[Variant] = deque(maxlen=self.kvgen.context_chunks)
            for chunk in needed:
                context.append(self._served(behind, list(context), chunk, report))

    def _needed(self, plan: Plan, report: Report) -> list[PlannedChunk]:
        """Those that were computed and have no variant, and those that they are captured behind."""
        computed = {chunk.chunk for chunk in report.chunks if chunk.tier == COMPUTED}
        lacking = {chunk.segment.hash for chunk in plan.chunks if not chunk.candidates} & computed
        wanted = {chunk for chunk in lacking if not self._refused.skips(chunk)}
        needed: list[PlannedChunk] = []
        before = 0  # chunks that the one behind still wants
        for chunk in reversed(plan.chunks):
            lacks = not chunk.candidates and (before > 0 or chunk.segment.hash in wanted)
            if lacks or before > 0:
                needed.append(chunk)
            before = self.kvgen.context_chunks if lacks else before - 1
        return needed[::-1]

    def _served(self, system: Variant, before: list[Variant], chunk: PlannedChunk, report: Report) -> Variant:
        """The variant that serves a chunk, or a new one, stored."""
        for candidate in chunk.candidates:
            if (found := fetch(candidate, self.store, report)) is not None:
                return found.variant
        variant = self._patient.capture(system, before, chunk.segment)
        self._keep(variant, report.incidents)
        return variant


def _lacked_nothing(report: Report) -> bool:
    """For sure, without a look into the store: all was there, and the first chunk in its lead variant."""
    return all(chunk.tier != COMPUTED for chunk in report.chunks) and all(chunk.exact for chunk in report.chunks[:1])


def _lacks_lead(plan: Plan) -> bool:
    """Whether the first chunk stands right behind System, and its best variant had chunks before it."""
    if not plan.chunks:
        return False
    first = plan.chunks[0]
    return first.span.start == len(plan.system) and bool(first.candidates) and not first.candidates[0].unchanged
