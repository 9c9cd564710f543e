"""A request of vLLM's on its way, to be linked or captured: what the steps order for it, in slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragcache.engine.vllm.block_names import LinkName
from ragcache.engine.vllm.meeting import Approach
from ragcache.engine.vllm.orders import Capture, Compute, Drop, Load, Probe, Probed, PromptRows
from ragcache.engine.vllm.requests import CaptureRequest
from ragcache.errors import ConfigError, PromptError
from ragcache.link_job import LinkJob
from ragcache.link_phase import Front, Phase
from ragcache.linkage import Linkage
from ragcache.linking.base import Choice, LinkedPrompt, PlacedChunk, Positions, Reduction, read_layers
from ragcache.linking.focus import narrowed
from ragcache.loader import UNKNOWN, PieceLoaded, SegmentPiece
from ragcache.planning import Plan
from ragcache.report import Report
from ragcache.types import FloatArray

LEAST_PROBE = 20  # tokens in whose time the weights of a probe's layers are read, on a CPU
# Of a capture that can wait:
PATIENT = 32  # tokens of a slice: whoever comes amid one waits for its end
EACH = 64  # steps that others take part in, of which it takes one, so that it ends also where others never do


@dataclass(frozen=True, kw_only=True)
class NamedLinkage(Linkage):
    """A prompt with something cached, as planned when it arrived."""

    name: LinkName  # of its KV, for all who ask for the same link
    known: int = 0  # positions that vLLM's prefix cache was taken to hold when it was judged
    always: bool = False  # it is not judged at all


class NeedsProbe(Exception):
    """A linker asked what the question reads."""

    def __init__(self, reduction: Reduction, depth: float):
        self.reduction, self.depth = reduction, depth


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


class RequestJob(LinkJob):
    """From the moment that vLLM has given the prompt its blocks."""

    def __init__(
        self, request: str, linkage: NamedLinkage, blocks: Sequence[int], skip: int, *, ranks: int, layers: int
    ):
        """`skip`: so many positions are in vLLM's prefix cache."""
        super().__init__(linkage, skip=skip, ranks=ranks)
        self._always = linkage.always
        self.request, self.phase = request, Phase.NEW
        self._blocks, self._layers = tuple(blocks), layers
        self._probes = 0  # ranks that have answered
        self._probed = range(0)  # layers that the probe reads
        self._reduction: Reduction = "max"
        self._fills = False  # rows are among them that were not cached
        self._meeting: Approach | None = None  # None where all is linked that is cached
        self._front = self.rows  # of the piece that is computed while others are loaded, those that are left
        self._claimed: Front | None = None
        self._lags = False  # upper layers come while it is computed over

    # -- orders -----------------------------------------------------------------------------------------------------

    def load(self, meeting: Approach | None = None, linking: float = 0.0) -> Load:
        self.phase, self._meeting = Phase.LOADING, None if self._always else meeting
        return Load(self.request, self.pieces, self._blocks, self.skip, self.room, linking=linking)

    def drop(self, tokens: int) -> Drop | None:
        """The first piece that has not come, or a part, if that is sooner computed, in slices of so many tokens."""
        piece = self.awaited
        if self._meeting is None or self._claimed is not None or piece is None:
            return None
        meeting, final = self._meeting, self.final
        front = self.front(piece, lambda rows, until: meeting.affords(piece, rows, tokens, until), final=final)
        if not meeting.claims(piece, front.rows, tokens, final=final, until=front.part):
            return None
        if final:
            self.overtake(front)
            self._claimed, self._front = front, front.rows
        else:
            self.lacks(piece)
        return Drop(self.request, piece.index, front.part)

    def ahead(self, tokens: int, spans: int) -> Compute | None:
        """The next slice of what was dropped."""
        if self._claimed is None:
            return None
        count = _fitting(self._front, tokens, spans)
        rows, self._front = self._front[:count], self._front[count:]
        if not len(self._front):
            claimed, self._claimed = self._claimed, None
            self.computed(claimed)
        return Compute(self.request, self._prompt_rows(rows), self.skip, ahead=True)

    def _choice(self, prompt: LinkedPrompt) -> Choice:
        choice = super()._choice(prompt)
        return narrowed(choice, prompt) if self.linkage.linker.focus else choice

    @property
    def room(self) -> int:
        """Positions that are loaded, and of the question, which a probe reads too."""
        return len(self.linkage.plan.ids)

    @property
    def needs_room(self) -> bool:
        """What is placed lies in the paged cache by the time that all is loaded; a probe reads it once more."""
        return self.phase in (Phase.LOADING, Phase.PROBE, Phase.PROBING) or self._lags

    def probe(self) -> Probe:
        self.phase = Phase.PROBING
        rows = self._prompt_rows(self._probe_rows())
        return Probe(self.request, rows, self.linkage.plan.question, self._probed, self._reduction)

    def compute(self, tokens: int, spans: int) -> Compute:
        """The next slice, of at most so many tokens (and scattered spans): ascending, so that it sees those before."""
        count = _fitting(self.rows, tokens, spans)
        rows, self.rows = self.rows[:count], self.rows[count:]
        lags, self._lags = self._lags, False  # this slice waits for every layer
        if not len(self.rows):
            self.phase = Phase.DONE
        return Compute(self.request, self._prompt_rows(rows), self.skip, lags=lags)

    def tail(self, tokens: int, spans: int) -> Compute | None:
        """All that is left, if it is one such slice and can wait for the step in which vLLM computes the question: then
        one forward does both. What lies before `exact` cannot, since vLLM shows it to others from now on; nor what
        lags, which others would wait for.
        """
        fits = len(self.rows) <= tokens and spans > 0 and _fitting(self.rows, tokens, spans) == len(self.rows)
        if not fits or self._lags or self.rows[0] < self.linkage.exact:
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
        self._lags = self._lags or answer.seconds == UNKNOWN  # of any rank
        super().loaded(answer)
        piece = next(piece for piece in self.pieces if piece.index == answer.index)
        if self._meeting is not None and self.has_come(piece):
            self._meeting.came(piece)

    def looked(self, when: float) -> None:
        if self._meeting is not None:
            self._meeting.looked(when)

    def _advance(self) -> None:
        if self._claimed is not None:
            return  # until that is computed, what comes behind it is not all
        super()._advance()
        if self.phase is Phase.CHOOSE:
            self._decide(None)

    def probed(self, answer: Probed) -> None:
        self._probes += 1
        if self._probes == self._ranks:
            self._decide(answer.attention)  # every rank's is that of all of them

    def _decide(self, attention: FloatArray | None) -> None:
        try:
            self.choose(PlannedPrompt(self.linkage.plan, self.placed, attention))
        except NeedsProbe as needed:
            self._probed, self._reduction = read_layers(needed.depth, self._layers), needed.reduction
            self.report.charged += len(self._probe_rows()) * self._probed.stop / self._layers
            self.phase = Phase.PROBE
        else:
            self._fills = bool(len(self.missing))


def _fitting(rows: Positions, tokens: int, spans: int) -> int:
    """How many of the rows are at most so many tokens in at most so many runs; at least one."""
    head = rows[: max(1, tokens)]
    breaks = np.flatnonzero(np.diff(head) != 1) + 1  # where a new run starts
    return int(breaks[spans - 1]) if len(breaks) >= spans else len(head)


class CaptureJob:
    """KVGen's step inside vLLM. The one token that vLLM generates after it is of no use to anybody. Where nothing is
    captured vLLM computes the prompt: its blocks hold what others left there.
    """

    def __init__(self, request: str, asked: CaptureRequest, blocks: Sequence[int], skip: int):
        """`skip`: so many positions are in vLLM's prefix cache. Raises PromptError where there are any: whatever they
        are, they are not what was named, and not ours to write over.
        """
        if skip:
            raise PromptError(f"vLLM holds {skip} tokens of it already")
        self.request = request
        self.phase = Phase.NEW
        self._asked, self._blocks = asked, tuple(blocks)
        starts = [0]
        for segment in asked.segments:
            starts.append(starts[-1] + len(segment))
        self._start, self._done = starts[-2], 0
        self._held = 0  # steps
        self._pieces = tuple(SegmentPiece(index, starts[index], (key,)) for index, key in enumerate(asked.keys[:-1]))
        self._waiting = {piece.index for piece in self._pieces}
        self.report = Report("capture", starts[-1], starts[-1], 0, other_computed=len(asked.segments[-1]))

    def load(self) -> Load:
        self.phase = Phase.LOADING if self._waiting else Phase.COMPUTE
        return Load(self.request, self._pieces, self._blocks, 0, self.room, self._asked.exchange)

    @property
    def room(self) -> int:
        """Positions of what stands before, and of the segment, whose slices stand there too."""
        return self._start + len(self._asked.segments[-1])

    @property
    def needs_room(self) -> bool:
        return self.phase in (Phase.LOADING, Phase.COMPUTE)

    def loaded(self, answer: PieceLoaded) -> None:
        """Raises PromptError for what cannot stand behind it."""
        if answer.chosen is None:
            self.report.incidents += answer.incidents
            raise PromptError(f"segment {answer.index} before it is not stored")
        self._waiting.discard(answer.index)
        if not self._waiting:
            self.phase = Phase.COMPUTE

    @property
    def stores(self) -> bool:
        """Or it is handed over within this process."""
        return not self._asked.exchange

    def stored(self) -> None:
        self.phase = Phase.DONE

    def holds_on(self, others: bool) -> bool:
        """Whether it leaves this step to them."""
        self._held = (self._held + 1) % EACH if self._asked.patient and others else 0
        return self._held > 0

    def capture(self, tokens: int) -> Capture:
        """The next slice, of at most so many tokens."""
        segment, begin = self._asked.segments[-1], self._done
        most = min(tokens, PATIENT) if self._asked.patient else tokens
        self._done = end = min(begin + max(1, most), len(segment))
        if end == len(segment):
            self.phase = Phase.STORE if self.stores else Phase.DONE
        positions = tuple(range(self._start + begin, self._start + end))
        rows = PromptRows(segment.ids[begin:end], positions, self._blocks)
        return Capture(self.request, rows, segment, self._start, self._asked.keys[-1], self._asked.exchange)
