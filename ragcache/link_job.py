"""A prompt on its way from cached chunks to KV: plan, load, choose, perhaps probe, repair, go on.

Pure state, the same for every engine: one that computes at once drives it in a loop, one that serves many requests by
steps. Whatever is decided here is decided once, and the report is made here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import takewhile

import numpy as np

from ragcache.linking.base import Choice, LinkedPrompt, Linker, PlacedChunk, Positions
from ragcache.loader import SYSTEM, Block, PieceLoaded, SegmentPiece
from ragcache.planning import Candidate, Plan, PlannedChunk
from ragcache.report import COMPUTED, OTHER, PREFIX, ChunkReport, Report
from ragcache.types import Span, VariantKey

BLOCKS = SYSTEM - 1  # index of the piece that is the first block of a stored prefix; the others count down


class Phase(Enum):
    NEW = auto()
    LOADING = auto()
    CHOOSE = auto()  # all is placed that will be
    PROBE = auto()  # to be ordered
    PROBING = auto()
    COMPUTE = auto()
    DONE = auto()


@dataclass(frozen=True)
class Linkage:
    """A prompt as it was planned, and how it is linked."""

    plan: Plan
    linker: Linker
    system: VariantKey | None  # of the segment that stands first, where it is System
    exact: int = 0  # positions before this one hold the KV of a plain prefill: others may share it

    @property
    def tokens(self) -> int:
        return len(self.plan.ids)

    def span(self, index: int) -> Span:
        """Positions of a piece, by its index."""
        if index <= BLOCKS:
            return self.plan.prefix[BLOCKS - index].span
        return Span(0, self.plan.head) if index == SYSTEM else self.plan.chunks[index].span

    def pieces(self) -> tuple[SegmentPiece, ...]:
        """A linker that recomputes all loads nothing."""
        if self.linker.recompute_all:
            return ()
        pieces = [self._piece(chunk) for chunk in self.plan.chunks if chunk.candidates]
        for place, block in enumerate(self.plan.prefix):
            info = block.info
            pieces.append(SegmentPiece(BLOCKS - place, block.start, (info.key,), True, info.tier, info.nbytes))
        pieces.sort(key=lambda piece: piece.start)
        if self.system is None:
            return tuple(pieces)
        where = next(((info.tier, info.nbytes) for info in self.plan.system_infos), ("", 0))
        return (SegmentPiece(SYSTEM, 0, (self.system,), self.exact > 0, *where), *pieces)

    def _piece(self, chunk: PlannedChunk) -> SegmentPiece:
        """Where others may share the KV, an exact variant that is bad is not replaced by one that is not exact."""
        shared = chunk.span.start < self.exact
        serve = takewhile(lambda found: found.exact or not shared, chunk.candidates)
        keys, best = tuple(found.info.key for found in serve), chunk.candidates[0].info
        return SegmentPiece(chunk.index, chunk.span.start, keys, shared, best.tier, best.nbytes)


class LinkJob:
    """One prompt's, from the moment that there is room for its KV."""

    def __init__(self, linkage: Linkage, *, skip: int = 0, ranks: int = 1):
        """`skip`: positions before this one hold right KV already. `ranks`: workers that each place every piece."""
        self.linkage, self.skip = linkage, skip
        self.pieces = linkage.pieces()
        self.phase = Phase.LOADING if self.pieces else Phase.CHOOSE
        plan = linkage.plan
        self.report = Report(linkage.linker.name, len(plan.ids), plan.question, len(plan.ids) - plan.question)
        self.report.declined = plan.declined
        self.report.incidents += plan.incidents
        self.rows: Positions = np.empty(0, dtype=np.int64)  # before the question, to be computed
        self._ranks = ranks
        self._loads: dict[int, list[PieceLoaded]] = {piece.index: [] for piece in self.pieces}
        self._chosen: dict[int, Candidate] = {}  # by chunk, once all is loaded
        self._final = skip  # positions before this one hold what a prefill would: they were computed
        # Positions before the question that nothing right or cached lies at, by then.
        self.missing = self.rows if self.pieces else self._lacking()

    # -- answers ----------------------------------------------------------------------------------------------------

    def loaded(self, answer: PieceLoaded) -> None:
        """Once per rank and piece; what comes after the decision is too late."""
        if self.phase is not Phase.LOADING:
            return
        self._loads[answer.index].append(answer)
        self.report.incidents += [told for told in answer.incidents if told not in self.report.incidents]
        if all(len(loads) >= self._ranks for loads in self._loads.values()):
            self.phase, self._chosen, self.missing = Phase.CHOOSE, self._found(), self._lacking()

    @property
    def awaited(self) -> SegmentPiece | None:
        """The first piece that has not come."""
        return next((piece for piece in self.pieces if not self._loads[piece.index]), None)

    @property
    def final(self) -> bool:
        """Whether all before the first piece that has not come is what a prefill would hold, a text, or lacking: then
        up to its end it can be computed at once.
        """
        came = [self._loads[piece.index][0] for piece in takewhile(lambda one: self._loads[one.index], self.pieces)]
        return all(load.index <= SYSTEM or load.chosen is None or self._came(load.index, load).exact for load in came)

    def rows_until(self, piece: SegmentPiece) -> Positions:
        """That must be computed for all up to the end of the front to be what a prefill would hold."""
        gone = self._lacking()
        return gone[(gone >= self._final) & (gone < self.linkage.span(piece.index).end)]

    def computed(self, piece: SegmentPiece) -> None:
        """All up to the end of the front."""
        self._final = self.linkage.span(piece.index).end
        self.loaded(PieceLoaded(piece.index, None))

    def fitting(self, piece: SegmentPiece, block: Block) -> Block:
        """As it is placed: where a stored prefix meets what else is, each position is written by one of them."""
        plan = self.linkage.plan
        if piece.index <= BLOCKS:
            return replace(block, turned=True).behind(self.linkage.span(piece.index).start)
        if piece.index == SYSTEM or not plan.prefix or piece.start < plan.prefix[0].span.start:
            return block
        return block.behind(plan.prefix_end)

    @property
    def lossless(self) -> bool:
        """Whether nothing that was placed has lost anything at rest."""
        return all(load.lossless for loads in self._loads.values() for load in loads if load.chosen is not None)

    def choose(self, prompt: LinkedPrompt) -> None:
        """Which rows are computed again, by the linker; it may ask the prompt what costs compute."""
        assert self.phase is not Phase.LOADING, "every piece has come, or never will"
        choice = self.linkage.linker.choose(prompt) if self._chosen else Choice(self.rows[:0])
        selected, self.report.predicted = choice.positions, choice.predicted
        selected = selected[selected >= self.linkage.plan.prefix_end]  # a chunk may begin amid what is stored exact
        self._tell(self._chosen, selected)
        rows = np.union1d(selected, self.missing)
        self.rows = rows[rows >= self.skip].astype(np.int64)
        self.phase = Phase.COMPUTE if len(self.rows) else Phase.DONE

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
        gone[: self._final] = False
        return np.flatnonzero(gone)

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

    # -- figures ----------------------------------------------------------------------------------------------------

    @property
    def placed_tokens(self) -> int:
        """That each rank has placed."""
        came = (piece.index for piece in self.pieces if self._agreed(piece.index) is not None)
        return sum(len(self.linkage.span(index)) for index in came)

    @property
    def repairable(self) -> int:
        """Tokens of what was linked and has changed: a linker chooses among them."""
        chunks = self.linkage.plan.chunks
        spans = [chunks[index].span for index, candidate in self._chosen.items() if not candidate.unchanged]
        return sum(max(0, span.end - max(span.start, self.skip)) for span in spans)

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
            return ChunkReport(chunk.segment.hash, tokens, COMPUTED, reused=prefix, computed=tokens - prefix)
        load = self._loads[chunk.index][0]
        repaired = int(np.count_nonzero((selected >= max(span.start, self.skip)) & (selected < span.end)))
        return ChunkReport(
            chunk.segment.hash,
            tokens,
            load.tier,
            reused=tokens - repaired,
            repaired=repaired,
            exact=candidate.exact,
            overlap=candidate.reuse.beta_adjusted,
            nbytes=load.nbytes,
            system=OTHER if candidate.system_gone else "",
        )
