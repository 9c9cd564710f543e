"""A prompt on its way from cached chunks to KV: plan, load, choose, perhaps probe, repair, go on.

Pure state, the same for every engine: one that computes at once drives it in a loop, one that serves many requests by
steps. Whatever is decided here is decided once, and the report is made here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from time import perf_counter

import numpy as np

from ragcache.link_phase import Affords, Front, Phase, furthest
from ragcache.linkage import BLOCKS, Linkage
from ragcache.linking.base import Choice, LinkedPrompt, PlacedChunk, Positions
from ragcache.loader import SYSTEM, Block, PieceLoaded, SegmentPiece
from ragcache.planning import Candidate, PlannedChunk
from ragcache.report import COMPUTED, OTHER, PREFIX, ChunkReport, Report
from ragcache.slices import ends_behind
from ragcache.timeline import LOAD, Stretch
from ragcache.types import Span, VariantKey


class LinkJob:
    """One prompt's, from the moment that there is room for its KV."""

    def __init__(self, linkage: Linkage, *, skip: int = 0, ranks: int = 1, started: float | None = None):
        """`skip`: positions before this one hold right KV already. `ranks`: workers that each place every piece.
        `started`: when the prompt was taken up, by perf_counter, if that was before now.
        """
        self.linkage, self.skip = linkage, skip
        self._started = perf_counter() if started is None else started
        self.pieces = linkage.pieces()
        self.phase = Phase.LOADING if self.pieces else Phase.CHOOSE
        plan = linkage.plan
        self.report = Report(linkage.linker.name, len(plan.ids), plan.question, len(plan.ids) - plan.question)
        self.report.declined, self.report.planned_s = plan.declined, plan.planned_s
        self.report.incidents += plan.incidents
        self.rows: Positions = np.empty(0, dtype=np.int64)  # before the question, to be computed
        self._ranks = ranks
        self._loads: dict[int, list[PieceLoaded]] = {piece.index: [] for piece in self.pieces}
        self._chosen: dict[int, Candidate] = {}  # by chunk, once all is loaded
        self._final = skip  # positions before this one hold what a prefill would: they were computed
        self._until = skip  # and before this one are, or will be before anything else is
        self._parts: dict[int, int] = {}  # by piece of which the rest is loaded, up to where it is computed
        self._computed: dict[int, int] = {}  # and how many of its tokens were
        self._overtaken: set[int] = set()  # pieces that are computed instead
        # Positions before the question that nothing right or cached lies at, by then.
        self.missing = self.rows if self.pieces else self._lacking()

    # -- answers ----------------------------------------------------------------------------------------------------

    def loaded(self, answer: PieceLoaded) -> None:
        """Once per rank and piece; what comes after the decision is too late."""
        if self.phase is not Phase.LOADING or answer.index in self._overtaken:
            return
        self._loads[answer.index].append(answer)
        if answer.read is not None:
            self.note(LOAD, answer.index, *answer.read)
        self.report.incidents += [told for told in answer.incidents if told not in self.report.incidents]
        self._advance()

    def _advance(self) -> None:
        if all(map(self.has_come, self.pieces)):
            self.phase, self._chosen, self.missing = Phase.CHOOSE, self._found(), self._lacking()

    def has_come(self, piece: SegmentPiece) -> bool:
        """To all ranks, or never will."""
        return len(self._loads[piece.index]) >= self._ranks

    @property
    def awaited(self) -> SegmentPiece | None:
        """The first piece that has not come, of those that right KV does not stand in for."""
        lacking = (piece for piece in self.pieces if self.linkage.span(piece.index).end > self.skip)
        return next((piece for piece in lacking if not self.has_come(piece)), None)

    @property
    def final(self) -> bool:
        """Whether all before the first piece that has not come is what a prefill would hold, a text, or lacking: then
        up to its end it can be computed at once.
        """
        awaited = self.awaited
        before = takewhile(lambda piece: piece is not awaited, self.pieces)
        # What is right without them may be what was linked before, unless others share it as a prefill's.
        return self.skip <= self.linkage.exact and all(self._is_final(piece) for piece in before)

    def _is_final(self, piece: SegmentPiece) -> bool:
        if piece.index <= SYSTEM or self.linkage.span(piece.index).end <= self.skip:
            return True
        load = self._agreed(piece.index)
        return load is None or self._came(piece.index, load).exact

    def front(self, piece: SegmentPiece, affords: Affords, *, final: bool) -> Front:
        """What is computed next if this one is: to its end, or amid it where all before it is `final`."""
        span, whole = self.linkage.span(piece.index), piece.index <= SYSTEM or not final
        ends = [span.end] if whole else ends_behind(self._until, span, piece.tier)
        return furthest(piece, ends, self._lacking(), affords)

    def overtake(self, front: Front) -> None:
        """It is about to be computed. Where that is all of the piece, what a rank may have placed of it already does
        not count.
        """
        self._until = max(self._until, front.until)
        if front.part is None:
            self._forget(front.piece)

    def computed(self, front: Front) -> None:
        self._until = self._final = max(self._final, front.until)  # a chunk may end behind the block that begins in it
        if front.part is None:
            self.lacks(front.piece)
        else:
            index, rows = front.piece.index, front.rows
            self._parts[index] = front.part
            self._computed[index] = self._computed.get(index, 0) + int((rows >= self.linkage.span(index).start).sum())
            self._advance()

    def _forget(self, piece: SegmentPiece) -> None:
        self._overtaken.add(piece.index)
        for known in (self._parts, self._computed):
            known.pop(piece.index, None)
        self._loads[piece.index] = []

    def lacks(self, piece: SegmentPiece) -> None:
        """It comes no more, to any rank."""
        self._forget(piece)
        self._loads[piece.index] = [PieceLoaded(piece.index, None)] * self._ranks
        self._advance()

    def fitting(self, piece: SegmentPiece, block: Block) -> Block:
        """As it is placed: where a prefix, or what is computed, meets what is loaded, one of them writes a position."""
        plan = self.linkage.plan
        if piece.index <= BLOCKS:
            return replace(block, turned=True).behind(self.linkage.span(piece.index).start)
        if piece.index == SYSTEM:
            return block
        begins_before = not plan.prefix or piece.start < plan.prefix[0].span.start
        return block.behind(self._until if begins_before else max(self._until, plan.prefix_end))

    @property
    def lossless(self) -> bool:  # nothing that was placed has lost anything at rest
        return all(load.lossless for loads in self._loads.values() for load in loads if load.chosen is not None)

    def choose(self, prompt: LinkedPrompt) -> None:
        """Which rows are computed again, by the linker; it may ask the prompt what costs compute."""
        assert self.phase is not Phase.LOADING, "every piece has come, or never will"
        choice = self._choice(prompt) if self._chosen else Choice(self.rows[:0])
        selected, self.report.predicted = choice.positions, choice.predicted
        # A chunk may begin amid what is stored exact, or computed.
        selected = selected[selected >= max(self._final, self.linkage.plan.prefix_end)]
        self._tell(self._chosen, selected)
        rows = np.union1d(selected, self.missing)
        self.rows = rows[rows >= self.skip].astype(np.int64)
        self.phase = Phase.COMPUTE if len(self.rows) else Phase.DONE

    def _choice(self, prompt: LinkedPrompt) -> Choice:
        return self.linkage.linker.choose(prompt)

    @property
    def placed(self) -> list[PlacedChunk]:
        """As linkers see them."""
        return [self.linkage.plan.chunks[index].placed(candidate) for index, candidate in self._chosen.items()]

    def _lacking(self) -> Positions:
        plan = self.linkage.plan
        gone = np.zeros(plan.tail, dtype=bool)
        gone[: plan.head] = self._agreed(SYSTEM) is None
        for text in plan.texts:
            gone[text.start : text.end] = True
        for chunk in plan.chunks:
            gone[chunk.span.start : chunk.span.end] = self._agreed(chunk.index) is None
        gone[plan.question :] = True
        for place, block in enumerate(plan.prefix):
            gone[block.span.start : block.span.end] = self._agreed(BLOCKS - place) is None
        return self._final + np.flatnonzero(gone[self._final :])

    def _agreed(self, index: int) -> PieceLoaded | None:
        """What all ranks placed; ranks that differ (one has a bad disk) have placed nothing together."""
        loads = self._loads.get(index, [])
        same = {load.chosen for load in loads}
        return loads[0] if len(loads) >= self._ranks and len(same) == 1 and None not in same else None

    def _found(self) -> dict[int, Candidate]:
        chosen = {}
        for chunk in self.linkage.plan.chunks:
            load = self._agreed(chunk.index)
            if load is not None and load.chosen is not None:
                chosen[chunk.index] = self._came(chunk.index, load)
        return chosen

    def _came(self, index: int, load: PieceLoaded) -> Candidate:
        assert load.chosen is not None
        lossless = all(one.lossless for place in (SYSTEM, index) for one in self._loads.get(place, ()))
        return self.linkage.plan.chunks[index].candidates[load.chosen].fetched(lossless)

    def note(self, kind: str, piece: int, began: float, ended: float, span: Span | None = None) -> None:
        """For the report's time line, by perf_counter. `span`: where it is not what is left of the piece."""
        whole = self.linkage.span(piece)
        span = span or (Span(self._until, whole.end) if whole.start < self._until < whole.end else whole)
        self.report.note(Stretch(kind, piece, span.start, span.end, began - self._started, ended - self._started))

    # -- figures ----------------------------------------------------------------------------------------------------

    @property
    def placed_tokens(self) -> int:
        """That each rank has placed."""
        came = ((one.index, self.linkage.span(one.index)) for one in self.pieces if self._agreed(one.index) is not None)
        return sum(len(span) - max(0, self._parts.get(index, 0) - max(self.skip, span.start)) for index, span in came)

    @property
    def repair(self) -> tuple[int, int]:
        """Tokens of what was linked and has changed, and how many of them the linker chose: of the chunks that were
        linked whole, if any, since linkers like their beginnings.
        """
        changed = [index for index, candidate in self._chosen.items() if not candidate.unchanged]
        judged = [index for index in changed if index not in self._parts] or changed
        spans = [self.linkage.span(index) for index in judged]
        among = sum(max(0, span.end - max(span.start, self._final)) for span in spans)
        return among, sum(self.report.chunks[index].repaired for index in judged)

    @property
    def passed(self) -> list[VariantKey]:
        """Of what is computed, since that is sooner than bringing it."""
        system = [self.linkage.system] if self.linkage.system is not None and SYSTEM in self._overtaken else []
        chunks = map(self._passed_over, self.linkage.plan.chunks)
        return [*system, *(found.info.key for found in chunks if found is not None)]

    @property
    def credits(self) -> list[tuple[VariantKey, float]]:
        """Of what was linked, how much each use is worth by Cache-Craft's measure (3.3)."""
        return [(found.info.key, found.worth) for found in self._chosen.values()]

    def _passed_over(self, chunk: PlannedChunk) -> Candidate | None:
        return chunk.candidates[0] if chunk.index in self._overtaken else chunk.passed

    def planned_tier(self, answer: PieceLoaded) -> str:
        """In which the plan saw what was read; empty where it saw nothing."""
        if answer.index == SYSTEM or answer.chosen is None:
            return ""
        if answer.index <= BLOCKS:
            return self.linkage.plan.prefix[BLOCKS - answer.index].info.tier
        return self.linkage.plan.chunks[answer.index].candidates[answer.chosen].info.tier

    # -- report -----------------------------------------------------------------------------------------------------

    def unlinked(self) -> Report:
        """Where nothing is placed after all."""
        self._tell({}, self.rows)
        return self.report

    def _tell(self, chosen: dict[int, Candidate], selected: Positions) -> None:
        plan, report, system = self.linkage.plan, self.report, self._agreed(SYSTEM)
        if 0 < plan.head <= self.skip:
            report.system_tier = PREFIX
        elif system is not None:
            report.system_tier = system.tier
        if report.system_tier == COMPUTED:
            report.other_computed += max(0, plan.head - self.skip)
        report.other_computed += sum(len(text) - self._held(text) for text in plan.texts)
        report.prefix_tokens = self._held(Span(0, len(plan.ids)))
        report.question_cached = self._held(Span(plan.question, len(plan.ids)))
        report.chunks = [self._told(chunk, chosen.get(chunk.index), selected) for chunk in plan.chunks]

    def _held(self, span: Span) -> int:
        """Positions whose KV the engine's prefix cache, or a stored prefix, held."""
        blocks = enumerate(self.linkage.plan.prefix)
        held = [block.span for place, block in blocks if self._agreed(BLOCKS - place) is not None]
        parts = (min(one.end, span.end) - max(one.start, span.start) for one in (Span(0, self.skip), *held))
        return sum(max(0, part) for part in parts)

    def _told(self, chunk: PlannedChunk, candidate: Candidate | None, selected: Positions) -> ChunkReport:
        span, tokens = chunk.span, len(chunk.segment)
        prefix = self._held(span)
        if prefix == tokens:
            # Of a request that runs for the second time, it may be what was linked the first time.
            exact = span.end <= max(self.linkage.exact, self.linkage.plan.prefix_end)
            told = ChunkReport(chunk.segment.hash, tokens, PREFIX, reused=tokens, exact=exact, overlap=1.0)
            return replace(told, system=OTHER if chunk.candidates and chunk.candidates[0].system_gone else "")
        if candidate is None:
            passed, leads = self._passed_over(chunk), chunk.index == 0
            kept = passed is not None and not passed.system_gone and (passed.unchanged or not leads)
            return ChunkReport(chunk.segment.hash, tokens, COMPUTED, prefix, computed=tokens - prefix, passed=kept)
        load, begin = self._loads[chunk.index][0], max(span.start, self.skip)
        repaired = int(np.count_nonzero((selected >= begin) & (selected < span.end)))
        first, behind = np.searchsorted(self.missing, (begin, span.end))  # lost of a stored prefix that reaches into it
        computed = self._computed.get(chunk.index, 0) + int(behind - first)
        return ChunkReport(
            chunk.segment.hash,
            tokens,
            load.tier,
            reused=tokens - repaired - computed,
            repaired=repaired,
            computed=computed,
            exact=candidate.exact,
            overlap=candidate.reuse.beta_adjusted,
            nbytes=load.nbytes,
            system=OTHER if candidate.system_gone else "",
        )
