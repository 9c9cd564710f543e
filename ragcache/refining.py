"""Variants from serving: a chunk that prompts link out of its context again and again is computed once more, behind
what stood before it in the last of them, while nobody waits. Prompts to come that have these chunks together link it
nearly as it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from ragcache.report import COMPUTED, PREFIX, ChunkReport, Report

if TYPE_CHECKING:
    from ragcache.planning import Plan, PlannedChunk

MISFIT = 0.1  # Cache-Craft's CFO of a variant that is out of its context
BEHIND = 8  # chunks before it in the prompt, at most
REMEMBERED = 1 << 16  # chunks


class Refining:
    """What is computed again for the prompts of one cache. Threads may share it."""

    def __init__(self, times: int):
        """`times`: that a chunk is linked out of its context before it is computed in it."""
        self.captured, self.seconds = 0, 0.0  # since the start
        self._times = times
        self._lock = threading.Lock()
        self._misfits = OrderedDict[str, int]()  # by chunk, since it was computed last; the one met last last

    def concerns(self, report: Report) -> bool:
        """Whether a prompt may have any such chunk."""
        return any(map(_may_misfit, report.chunks))

    def wanted(self, plan: Plan) -> set[int]:
        """Chunks of an answered prompt that are due, by their places. Asked once of each prompt."""
        return {chunk.index for chunk in plan.chunks if _misfits(chunk) and self._is_due(chunk)}

    def done(self, seconds: float) -> None:
        with self._lock:
            self.captured, self.seconds = self.captured + 1, self.seconds + seconds

    def _is_due(self, chunk: PlannedChunk) -> bool:
        name = f"{chunk.segment.hash} {chunk.segment.border}"
        with self._lock:
            count = self._misfits.pop(name, 0) + 1
            due = count >= self._times
            self._misfits[name] = 0 if due else count
            if len(self._misfits) > REMEMBERED:
                self._misfits.popitem(last=False)
        return due


def _may_misfit(chunk: ChunkReport) -> bool:
    """CCI is one at most."""
    return chunk.tier not in (COMPUTED, PREFIX) and not chunk.exact and 1.0 - chunk.overlap >= MISFIT


def _misfits(chunk: PlannedChunk) -> bool:
    """What was computed behind another System segment is captured behind the prompt's own anyway."""
    if not chunk.candidates:
        return False
    best = chunk.candidates[0]
    return not (best.unchanged or best.system_gone) and best.reuse.cfo() >= MISFIT
