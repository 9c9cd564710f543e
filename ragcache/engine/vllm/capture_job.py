"""One request that captures its last segment: load what stands before it, compute it in slices, keep it."""

from __future__ import annotations

from collections.abc import Sequence

from ragcache.engine.vllm.orders import Capture, Load, PromptRows
from ragcache.engine.vllm.requests import CaptureRequest
from ragcache.loader.base import PieceLoaded, SegmentPiece
from ragcache.prompt.link_job import Phase
from ragcache.report import Report

# Of a capture that can wait:
PATIENT = 32  # tokens of a slice: whoever comes amid one waits for its end
EACH = 64  # steps that others take part in, of which it takes one, so that it ends also where others never do


class CaptureJob:
    """KVGen's step inside vLLM. The one token that vLLM generates after it is of no use to anybody."""

    def __init__(self, request: str, asked: CaptureRequest, blocks: Sequence[int], skip: int):
        """`skip`: so many positions are in vLLM's prefix cache."""
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
        if skip:  # whatever it is, it is not what was named, and not ours to write over
            self.report.incidents.append(f"not captured: vLLM holds {skip} tokens of it already")
            self.phase = Phase.DONE

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
        if self.phase is not Phase.LOADING:
            return
        if answer.chosen is None:
            self.report.incidents += answer.incidents
            self.report.incidents.append(f"not captured: segment {answer.index} before it is not stored")
            self.phase = Phase.DONE
            return
        self._waiting.discard(answer.index)
        if not self._waiting:
            self.phase = Phase.COMPUTE

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
            self.phase = Phase.DONE
        positions = tuple(range(self._start + begin, self._start + end))
        rows = PromptRows(segment.ids[begin:end], positions, self._blocks)
        return Capture(self.request, rows, segment, self._start, self._asked.keys[-1], self._asked.exchange)
