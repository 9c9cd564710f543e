"""ChunkCache: prompts made of cached chunks, answered by any engine."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from time import perf_counter

from ragcache.address import border_behind, tellable, visible
from ragcache.engine import Engine, LinkSource, PromptRequest, TokenStream
from ragcache.errors import FAULTS, PromptError, StoreError, reason_of
from ragcache.keeping import MOST_WAITING, Keeper, not_captured
from ragcache.kvgen import ChunkIngest, KVGen, fetched, keep
from ragcache.linking import make_linker
from ragcache.linking.base import Linker
from ragcache.loader import Loader
from ragcache.ordering import least_repaired
from ragcache.planning import Plan, PlannedChunk, plan_prompt
from ragcache.policy import Rates
from ragcache.prefix_keeping import Prefixes
from ragcache.refining import BEHIND, Refining
from ragcache.report import COMPUTED, OTHER, ChunkReport, Report
from ragcache.sampling import Sampling
from ragcache.store.base import NO_ERA, KVStore
from ragcache.together import Together
from ragcache.types import Chunk, Segment, System, Variant, VariantKey

logger = logging.getLogger(__name__)


class ChunkCache(ChunkIngest):
    """One engine, one store, a default linker: it captures chunks, and answers prompts that are made of them. Threads
    may share it.
    """

    def __init__(
        self,
        engine: Engine,
        store: KVStore,
        linker: Linker | str = "auto",
        *,
        context_chunks: int = 3,
        loader: Loader | None = None,
        keep_missed: bool = True,
        keeper: Keeper | None = None,
        rates: Rates | None = None,
    ):
        """`keep_missed`: after an answer, capture and store the chunks that had to be computed for it: at once, or when
        the keeper finds the time. `rates`: with these, which learn from every prompt, chunks are linked only where that
        is predicted to be sooner than computing them; without, always.
        """
        super().__init__(engine, store, context_chunks)
        self.linker = self.chosen(linker)
        self.keep_missed, self.keeper = keep_missed, keeper
        self.refining: Refining | None = None  # for whoever goes on, and has a keeper
        begin = keeper.begin_answering if keeper else nobody_waits
        spec = engine.spec
        prefixes = Prefixes(store, spec.fingerprint, spec.form, spec.token_bytes, keeper)
        self.source = LinkSource(store, self.system.fetched, begin, loader, rates, prefixes)
        self._patient = KVGen(engine, context_chunks, keeper.pause if keeper else None)
        self._met = deque[str](maxlen=MOST_WAITING)  # incidents of looks ahead, which no report tells yet

    def generate(
        self,
        segments: Sequence[Segment],
        *,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        linker: Linker | str | None = None,
        stop: frozenset[int] = frozenset(),
        behind: System | None = None,
        owner: str = "",
        together: Together | None = None,
    ) -> TokenStream:
        """Answer a prompt: greedily, and with the cache's own linker, unless others are given. `behind`: the System
        segment that what is captured for the prompts to come stands behind, in place of the prompt's own, whose KV
        serves its `owner` alone. `together` with other answers to it, for which it is computed once.

        Raises PromptError for a prompt that is malformed or too long, ConfigError for a linker or a sampling that
        cannot be used.
        """
        if max_tokens < 1:
            raise PromptError(f"max_tokens is {max_tokens}: ask for at least one token")
        if sampling is not None:
            self.engine.check_sampling(sampling)
        era = self._era()
        chosen = sampling or Sampling()
        prompt = PromptRequest(segments, self.chosen(linker), max_tokens, chosen, stop, era, together=together)
        # A linker that recomputes all looked nothing up: what it computed may well be stored.
        keeps = self.keep_missed and not prompt.linker.recompute_all
        with ExitStack() as failed:
            if not prompt.linker.recompute_all:  # it may wait for the engine, while what is far comes nearer
                failed.callback(self.store.near(partial(self._wanted, segments)))
            kept = [behind if behind and isinstance(one, System) else one for one in segments]
            finish = partial(self._finish, kept, era) if keeps else None
            source = self.source
            if behind:  # blocks of prefixes would have seen what is its owner's alone
                source = replace(source, system=partial(self.system.owned, owner), prefixes=None)
            stream = self.engine.answer(prompt, source, finish)
            failed.pop_all()
        if any(isinstance(segment, Chunk) for segment in segments):  # somebody reads its report
            stream.report.incidents += self.keeper.take_told() if self.keeper else []
            self._tell_met(stream.report)
        return stream

    def _wanted(self, segments: Sequence[Segment]) -> list[VariantKey]:
        """That a prompt will load, as far as its plan can tell."""
        plan = plan_prompt(segments, self.engine.spec.fingerprint, self.store)
        self._met.extend(plan.incidents)  # each is met once: by then it is out of the way
        best = (chunk.candidates[0].info for chunk in plan.chunks if chunk.candidates)
        return [info.key for info in (*plan.system_infos, *best)]

    def _tell_met(self, report: Report) -> None:
        with suppress(IndexError):  # threads share it
            while True:
                told = self._met.popleft()
                report.incidents += [] if told in report.incidents else [told]

    def least_repaired(self, system: System, chunks: Sequence[Chunk]) -> list[int]:
        """See `ordering`. What the store could not tell, the next report does."""
        incidents: list[str] = []
        order = least_repaired(system, chunks, self.engine.spec.fingerprint, self.store, incidents)
        self._met.extend(incidents)
        return order

    def _era(self) -> int:
        with suppress(StoreError):  # whoever plans with it is told
            return self.store.era()
        return NO_ERA

    def chosen(self, linker: Linker | str | None) -> Linker:
        """The cache's own where none is given. Raises ConfigError for one that this engine cannot serve."""
        if linker is None or linker == "":
            return self.linker
        made = make_linker(linker) if isinstance(linker, str) else linker
        self.engine.check_linker(made)
        return made

    def _finish(self, segments: Sequence[Segment], era: int, report: Report) -> None:
        """After the last token of an answer."""
        self._tell_met(report)
        if self.keeper and self.refining and self.refining.concerns(report) and self.refining.ask(segments, era):
            self.keeper.later(partial(self._refine, self.refining), last=True)
        if _lacked_nothing(report):
            return
        if self.keeper is None:
            try:
                self.keep(segments, report, era)
            except FAULTS as error:  # the answer is there, and does not fail because of it
                logger.warning("what a prompt lacked was not captured", exc_info=True)
                report.incidents.append(not_captured(error))
            return
        own = replace(report, seconds={}, incidents=[])  # the answer's may be read by now

        def later() -> list[str]:
            self.keep(segments, own, era)
            return own.incidents

        self.keeper.later(later)

    def keep(self, segments: Sequence[Segment], report: Report, era: int) -> None:
        """Capture what the store lacks, so the next prompt finds it: chunks that were computed, or served by KV of
        another System segment, each behind the chunks before it, and the lead variant of the first chunk.
        Nothing once the `era` has ended in which they were asked for.
        """
        plan = plan_prompt(segments, self.engine.spec.fingerprint, self.store, others=False)
        leads = _lacks_lead(plan) and not self._refused.skips(plan.chunks[0].segment.hash)
        needed = self._needed(plan, report)
        if not (leads or needed) or self.store.era() != era:
            return
        with report.stage("keep"):
            behind = self._behind(plan.system, report.incidents) if plan.system else None
            if leads and behind:
                self._keep(self._patient.capture(behind, [], plan.chunks[0].segment), report, era)
            context: deque[Variant] = deque(maxlen=self.kvgen.context_chunks)
            for chunk in needed:
                context.append(self._served(behind, list(context), chunk, report, era))

    def _refine(self, refining: Refining) -> list[str]:
        """Nobody asked for it: what goes wrong in it is logged, and ends where there is something else to do."""
        if (asked := refining.take()) is None:
            return []
        segments, era = asked
        try:
            held = dict[int, Variant]()
            plan = plan_prompt(segments, self.engine.spec.fingerprint, self.store, others=False)
            for place in sorted(refining.wanted(plan)) if plan.system else ():
                started, room = perf_counter(), plan.chunks[place].candidates[0].info.nbytes
                if self.store.era() != era or not self.store.tiers()[-1].has_room(room) or self._is_urgent:
                    break
                held[place] = self._captured_in_place(plan, place, held)
                self.store.put_within(era, held[place])
                refining.done(perf_counter() - started)
        except FAULTS as error:
            logger.warning("a chunk was not captured in the context of a prompt: %s", reason_of(error))
        return []

    @property
    def _is_urgent(self) -> bool:
        """Whether the keeper has something to do that people lack, or is to end."""
        return self.keeper is not None and self.keeper.is_urgent

    def _captured_in_place(self, plan: Plan, place: int, held: dict[int, Variant]) -> Variant:
        """`held`: variants by their places, which those that are brought for it join."""
        assert plan.system is not None
        behind, chunk = self._behind(plan.system, []), plan.chunks[place]
        before = range(max(0, place - BEHIND), place)
        for one in before:
            best = plan.chunks[one].candidates[:1]
            if one not in held and best and (found := fetched(self.store, best[0].info.key, [])) is not None:
                held[one] = found.variant
        there = visible([held[one] for one in before if one in held], border_behind(behind.key.border, chunk.segment))
        return self._patient.capture(behind, tellable(there), chunk.segment)

    def _needed(self, plan: Plan, report: Report) -> list[PlannedChunk]:
        """Those that lacked a variant and still have none, and those that they are captured behind."""
        lacked = {chunk.chunk for chunk in report.chunks if _lacked(chunk)}
        lacking = {chunk.segment.hash for chunk in plan.chunks if not chunk.candidates} & lacked
        wanted = {chunk for chunk in lacking if not self._refused.skips(chunk)}
        needed: list[PlannedChunk] = []
        before = 0  # chunks that the one behind still wants
        context = self.kvgen.context_chunks if plan.system else 0  # without a System segment each is captured alone
        for chunk in reversed(plan.chunks):
            lacks = not chunk.candidates and (before > 0 or chunk.segment.hash in wanted)
            if lacks or before > 0:
                needed.append(chunk)
            before = context if lacks else before - 1
        return needed[::-1]

    def _served(
        self, system: Variant | None, before: list[Variant], chunk: PlannedChunk, report: Report, era: int
    ) -> Variant:
        """The variant that serves a chunk, or a new one, stored."""
        for candidate in chunk.candidates:
            if (found := fetched(self.store, candidate.info.key, report.incidents)) is not None:
                return found.variant
        if system is None:  # such a prompt's chunks are captured as if each stood first
            variant = self._patient.system(System(chunk.segment.ids, chunk.segment.border))
        else:
            context = tellable(visible(before, border_behind(system.key.border, chunk.segment)))
            variant = self._patient.capture(system, context, chunk.segment)
        self._keep(variant, report, era)
        return variant

    def _behind(self, system: System, incidents: list[str]) -> Variant:
        return self.system.patiently(self._patient, system, incidents).variant

    def _keep(self, variant: Variant, report: Report, era: int) -> None:
        keep(variant, partial(self.store.put_within, era), self._refused, report.incidents)


def _lacked_nothing(report: Report) -> bool:
    """For sure, without a look into the store: all was there, and the first chunk in its lead variant."""
    lead = report.chunks[:1]
    return not any(map(_lacked, report.chunks)) and all(chunk.exact or chunk.passed for chunk in lead)


def _lacked(chunk: ChunkReport) -> bool:
    """A variant behind the prompt's own System segment."""
    return (chunk.tier == COMPUTED and not chunk.passed) or chunk.system == OTHER


def _lacks_lead(plan: Plan) -> bool:
    """Whether the first chunk stands right behind System, and its best variant had chunks before it."""
    if not plan.chunks:
        return False
    first = plan.chunks[0]
    return 0 < plan.head == first.span.start and bool(first.candidates) and not first.candidates[0].unchanged


def nobody_waits() -> Callable[[], None]:
    return lambda: None
