"""A request of vLLM's on its way: what the steps order for it, in slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragcache.engine.vllm.block_names import LinkName
from ragcache.engine.vllm.orders import Compute, Load, Probe, Probed, PromptRows
from ragcache.errors import ConfigError
from ragcache.linking.base import LinkedPrompt, PlacedChunk, Positions, Reduction, read_layers
from ragcache.loader.base import PieceLoaded
from ragcache.prompt.link_job import Linkage, LinkJob, Phase
from ragcache.prompt.planning import Plan
from ragcache.types import FloatArray

LEAST_PROBE = 20  # tokens in whose time the weights of a probe's layers are read, on a CPU


@dataclass(frozen=True, kw_only=True)
class NamedLinkage(Linkage):
    """A prompt with something cached, as planned when it arrived."""

    name: LinkName  # of its KV, for all who ask for the same link
    known: int = 0  # positions that vLLM's prefix cache was taken to hold when it was judged


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

    def __init__(self, request: str, linkage: Linkage, blocks: Sequence[int], skip: int, *, ranks: int, layers: int):
        """`skip`: so many positions are in vLLM's prefix cache."""
        super().__init__(linkage, skip=skip, ranks=ranks)
        self.request, self.phase = request, Phase.NEW
        self._blocks, self._layers = tuple(blocks), layers
        self._probes = 0  # ranks that have answered
        self._probed = range(0)  # layers that the probe reads
        self._reduction: Reduction = "max"
        self._fills = False  # rows are among them that were not cached

    # -- orders -----------------------------------------------------------------------------------------------------

    def load(self) -> Load:
        self.phase = Phase.LOADING
        return Load(self.request, self.pieces, self._blocks, self.skip, self.room)

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
        count = _fitting(self.rows, tokens, spans)
        rows, self.rows = self.rows[:count], self.rows[count:]
        if not len(self.rows):
            self.phase = Phase.DONE
        return Compute(self.request, self._prompt_rows(rows), self.skip)

    def tail(self, tokens: int, spans: int) -> Compute | None:
        """All that is left, if it is one such slice and can wait for the step in which vLLM computes the question: then
        one forward does both. What lies before `exact` cannot, since vLLM shows it to others from now on.
        """
        fits = len(self.rows) <= tokens and spans > 0 and _fitting(self.rows, tokens, spans) == len(self.rows)
        if not fits or self.rows[0] < self.linkage.exact:
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
        super().loaded(answer)
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
