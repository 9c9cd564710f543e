"""One request on its way from cached chunks to KV: load, choose, perhaps probe, repair in slices.

Pure state: it knows nothing of vLLM, and every decision here is taken once for all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import takewhile

import numpy as np

from ragcache.engine.vllm.hashing import LinkName
from ragcache.engine.vllm.orders import SYSTEM, Compute, Load, PieceLoaded, Probe, Probed, PromptRows, SegmentPiece
from ragcache.errors import ConfigError
from ragcache.linking.base import LinkedPrompt, Linker, PlacedChunk, Positions, Reduction, read_layers
from ragcache.planning import Candidate, Plan, PlannedChunk
from ragcache.report import COMPUTED, ChunkReport, Report
from ragcache.types import FloatArray, VariantKey

LEAST_PROBE = 20  # tokens in whose time the weights of a probe's layers are read, on a CPU
PREFIX = "prefix"  # the tier of what vLLM's own prefix cache held


class Phase(Enum):
    NEW = auto()
    LOADING = auto()
    PROBE = auto()  # to be ordered
    PROBING = auto()
    COMPUTE = auto()
    DONE = auto()


class NeedsProbe(Exception):
    """A linker asked what the question reads."""

    def __init__(self, reduction: Reduction, depth: float):
        self.reduction, self.depth = reduction, depth


@dataclass(frozen=True)
class Linkage:
    """A prompt with something cached, as planned when it arrived."""

    plan: Plan
    linker: Linker
    system: VariantKey
    exact: int  # positions before this one hold the KV of a plain prefill: others may share it
    name: LinkName  # of its KV, for all who ask for the same link
    known: int = 0  # positions that vLLM's prefix cache was taken to hold when it was judged

    @property
    def tokens(self) -> int:
        return len(self.plan.ids)

    def pieces(self) -> tuple[SegmentPiece, ...]:
        chunks = (self._piece(chunk) for chunk in self.plan.chunks if chunk.candidates)
        return (SegmentPiece(SYSTEM, 0, (self.system,), shared=self.exact > 0), *chunks)

    def _piece(self, chunk: PlannedChunk) -> SegmentPiece:
        """Where others may share the KV, an exact variant that is bad is not replaced by one that is not exact."""
        shared = chunk.span.start < self.exact
        serve = takewhile(lambda found: found.exact or not shared, chunk.candidates)
        return SegmentPiece(chunk.index, chunk.span.start, tuple(found.info.key for found in serve), shared)


class PlannedPrompt(LinkedPrompt):
    """What a linker sees of a prompt whose KV lies on the workers."""

    def __init__(self, plan: Plan, chunks: list[PlacedChunk], attention: FloatArray | None):
        self.ids, self.question, self.chunks = plan.ids, plan.question, chunks
        self._attention = attention

    def question_attention(self, reduction: Reduction, depth: float = 1.0) -> FloatArray:
        if self._attention is None:
            raise NeedsProbe(reduction, depth)
        return self._attention

    def deviation(self, layers: int) -> FloatArray:
        raise ConfigError("KV deviation is not measured inside vLLM: use the torch engine for this linker")


class LinkJob:
    """From the moment that vLLM has given the prompt its blocks."""

    def __init__(self, request: str, linkage: Linkage, blocks: Sequence[int], skip: int, *, ranks: int, layers: int):
        """`skip`: so many positions are in vLLM's prefix cache."""
        self.request, self.linkage, self.skip = request, linkage, skip
        self.phase = Phase.NEW
        self.report = _report(linkage)
        self._blocks = tuple(blocks)
        self._ranks, self._layers = ranks, layers
        self._pieces = {piece.index: piece for piece in linkage.pieces()}
        self._loads: dict[int, list[PieceLoaded]] = {index: [] for index in self._pieces}
        self._probes = 0  # ranks that have answered
        self._probed = range(0)  # layers that the probe reads
        self._reduction: Reduction = "max"
        self._rows: Positions = np.empty(0, dtype=np.int64)
        self._fills = False  # rows are among them that were not cached

    # -- orders -----------------------------------------------------------------------------------------------------

    def load(self) -> Load:
        self.phase = Phase.LOADING
        return Load(self.request, tuple(self._pieces.values()), self._blocks, self.skip, self.room)

    @property
    def room(self) -> int:
        """Positions that are loaded, and of the question, which a probe reads too."""
        return len(self.linkage.plan.ids)

    @property
    def needs_room(self) -> bool:
        """What is placed lies in the paged cache by the time that all is loaded; a probe reads it once more."""
        return self.phase in (Phase.LOADING, Phase.PROBE, Phase.PROBING)

    def probe(self) -> Probe:
        self.phase = Phase.PROBING
        rows = self._prompt_rows(self._probe_rows())
        return Probe(self.request, rows, self.linkage.plan.question, self._probed, self._reduction)

    def compute(self, tokens: int, spans: int) -> Compute:
        """The next slice, of at most so many tokens (and scattered spans): ascending, so that it sees those before."""
        count = _fitting(self._rows, tokens, spans)
        rows, self._rows = self._rows[:count], self._rows[count:]
        if not len(self._rows):
            self.phase = Phase.DONE
        return Compute(self.request, self._prompt_rows(rows), self.skip)

    def tail(self, tokens: int, spans: int) -> Compute | None:
        """All that is left, if it is one such slice and can wait for the step in which vLLM computes the question: then
        one forward does both. What lies before `exact` cannot, since vLLM shows it to others from now on.
        """
        fits = len(self._rows) <= tokens and spans > 0 and _fitting(self._rows, tokens, spans) == len(self._rows)
        if not fits or self._rows[0] < self.linkage.exact:
            return None
        return replace(self.compute(tokens, spans), valid=max(self.skip, self.linkage.exact))

    @property
    def resumes(self) -> int:
        """The position that vLLM goes on from. A probe's tokens are computed again: to go on with them from where it
        stopped takes a pass that vLLM has not compiled, which costs more than they do in vLLM's own step.
        """
        return self.linkage.plan.question

    @property
    def question(self) -> int:
        """Its tokens, which vLLM computes in one step."""
        return len(self.linkage.plan.ids) - self.linkage.plan.question

    @property
    def probe_cost(self) -> int:
        """In tokens through all layers that take as long."""
        return max(LEAST_PROBE, -(-len(self._probe_rows()) * self._probed.stop // self._layers))

    @property
    def ample(self) -> bool:
        """Whether much of its rows is what vLLM would compute in steps as large as they come: what was not cached."""
        return self._fills

    def _probe_rows(self) -> Positions:
        """The question's alone: what is missing says nothing to it yet."""
        return np.arange(self.linkage.plan.question, len(self.linkage.plan.ids))

    def _prompt_rows(self, rows: Positions) -> PromptRows:
        ids = self.linkage.plan.ids
        return PromptRows(tuple(ids[row] for row in rows), tuple(rows.tolist()), self._blocks)

    # -- answers ----------------------------------------------------------------------------------------------------

    def loaded(self, answer: PieceLoaded) -> None:
        """Once per rank and piece; what comes after the decision is too late."""
        if self.phase is not Phase.LOADING:
            return
        self._loads[answer.index].append(answer)
        self.report.incidents += [told for told in answer.incidents if told not in self.report.incidents]
        if all(len(loads) >= self._ranks for loads in self._loads.values()):
            self._decide(None)

    def probed(self, answer: Probed) -> None:
        self._probes += 1
        if self._probes == self._ranks:
            self._decide(answer.attention)  # every rank's is that of all of them

    def _decide(self, attention: FloatArray | None) -> None:
        plan, chosen = self.linkage.plan, self._chosen()
        placed = [plan.chunks[index].placed(candidate) for index, candidate in chosen.items()]
        try:
            prompt = PlannedPrompt(plan, placed, attention)
            selected = self.linkage.linker.select(prompt) if placed else self._rows[:0]
        except NeedsProbe as needed:
            self._probed, self._reduction = read_layers(needed.depth, self._layers), needed.reduction
            self.report.charged += len(self._probe_rows()) * self._probed.stop / self._layers
            self.phase = Phase.PROBE
            return
        self._tell(chosen, selected)
        missing = self._missing()
        rows = np.union1d(selected, missing)
        self._rows, self._fills = rows[rows >= self.skip].astype(np.int64), bool(len(missing))
        self.phase = Phase.COMPUTE if len(self._rows) else Phase.DONE

    def _agreed(self, index: int) -> PieceLoaded | None:
        """What all ranks placed; ranks that differ (one has a bad disk) have placed nothing together."""
        loads = self._loads.get(index, [])
        same = {load.chosen for load in loads}
        return loads[0] if len(loads) >= self._ranks and len(same) == 1 and None not in same else None

    def _chosen(self) -> dict[int, Candidate]:
        chosen = {}
        for chunk in self.linkage.plan.chunks:
            load = self._agreed(chunk.index)
            if load is not None and load.chosen is not None:
                lossless = all(one.lossless for index in (SYSTEM, chunk.index) for one in self._loads[index])
                chosen[chunk.index] = chunk.candidates[load.chosen].fetched(lossless)
        return chosen

    def _missing(self) -> Positions:
        """Positions before the question that nothing right or cached lies at."""
        plan = self.linkage.plan
        gone = np.zeros(plan.question, dtype=bool)
        gone[: len(plan.system)] = self._agreed(SYSTEM) is None
        for text in plan.texts:
            gone[text.start : text.end] = True
        for chunk in plan.chunks:
            gone[chunk.span.start : chunk.span.end] = self._agreed(chunk.index) is None
        gone[: self.skip] = False
        return np.flatnonzero(gone)

    @property
    def placed(self) -> int:
        """Tokens that each rank has placed."""
        lengths = {SYSTEM: len(self.linkage.plan.system)}
        lengths |= {chunk.index: len(chunk.segment) for chunk in self.linkage.plan.chunks}
        return sum(lengths[index] for index in self._pieces if self._agreed(index) is not None)

    def planned_tier(self, answer: PieceLoaded) -> str:
        """In which the plan saw what was read; empty where it saw nothing."""
        if answer.index == SYSTEM or answer.chosen is None:
            return ""
        chunk = next(chunk for chunk in self.linkage.plan.chunks if chunk.index == answer.index)
        return chunk.candidates[answer.chosen].info.tier

    # -- report -----------------------------------------------------------------------------------------------------

    def _tell(self, chosen: dict[int, Candidate], selected: Positions) -> None:
        plan, report = self.linkage.plan, self.report
        system = self._agreed(SYSTEM)
        if self.skip >= len(plan.system):
            report.system_tier = PREFIX
        elif system is not None:
            report.system_tier = system.tier
        else:
            report.other_computed += len(plan.system) - self.skip
        report.other_computed += sum(len(text) for text in plan.texts)
        for chunk in plan.chunks:
            report.chunks.append(self._told(chunk, chosen.get(chunk.index), selected))

    def _told(self, chunk: PlannedChunk, candidate: Candidate | None, selected: Positions) -> ChunkReport:
        span, tokens = chunk.span, len(chunk.segment)
        prefix = min(max(self.skip - span.start, 0), tokens)
        if prefix == tokens:
            # Of a request that runs for the second time, it may be what was linked the first time.
            exact = span.end <= self.linkage.exact
            return ChunkReport(chunk.segment.hash, tokens, PREFIX, reused=tokens, exact=exact, overlap=1.0)
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
        )


def _report(linkage: Linkage) -> Report:
    plan = linkage.plan
    report = Report(linkage.linker.name, len(plan.ids), plan.question, len(plan.ids) - plan.question)
    report.declined = plan.declined
    report.incidents += plan.incidents
    return report


def _fitting(rows: Positions, tokens: int, spans: int) -> int:
    """How many of the rows are at most so many tokens in at most so many runs; at least one."""
    head = rows[: max(1, tokens)]
    breaks = np.flatnonzero(np.diff(head) != 1) + 1  # where a new run starts
    return int(breaks[spans - 1]) if len(breaks) >= spans else len(head)
