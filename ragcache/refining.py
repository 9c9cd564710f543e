"""Variants from serving: a chunk that prompts link out of its context again and again is computed once more, behind
what stood before it in the last of them, while nobody waits. Prompts to come that have these chunks together link it
nearly as it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragcache.keeping import MOST_WAITING
from ragcache.report import COMPUTED, PREFIX, ChunkReport, Report

if TYPE_CHECKING:
    from ragcache.planning import Plan, PlannedChunk
    from ragcache.types import Segment

MISFIT = 0.1  # Cache-Craft's CFO of a variant that is out of its context
BEHIND = 8  # chunks before it in the prompt, at most
AT_ONCE = 8  # chunks of a prompt, at most
LEAST_TOKENS = 16  # of a chunk: each is a forward and a file of its own
REMEMBERED = 1 << 16  # chunks
LONGEST = 1 << 16  # misfits until a chunk is due again


class Refining:
    """What is computed again for the prompts of one cache. Threads may share it."""

    def __init__(self, times: int):
        """`times`: that a chunk is linked out of its context before it is computed in it; twice as many each time."""
        self.captured, self.seconds = 0, 0.0  # since the start
        self._times = times
        self._lock = threading.Lock()
        self._misfits = OrderedDict[str, tuple[int, int]]()  # met and wanted, by chunk; the one met last last
        self._next: tuple[Sequence[Segment], int] | None = None
        self._passed = 0  # prompts in whose place it came

    def concerns(self, report: Report) -> bool:
        """Whether a prompt may have any such chunk."""
        return any(map(_may_misfit, report.chunks))

    def ask(self, segments: Sequence[Segment], era: int) -> bool:
        """The prompt that is looked at next, in place of one that waits; says whether somebody is to be told to look:
        again after many, since whoever was may have been left out.
        """
        with self._lock:
            wanted, self._next = self._next is None or self._passed >= MOST_WAITING, (segments, era)
            self._passed = 0 if wanted else self._passed + 1
            return wanted

    def take(self) -> tuple[Sequence[Segment], int] | None:
        with self._lock:
            taken, self._next = self._next, None
        return taken

    def wanted(self, plan: Plan) -> set[int]:
        """Chunks of an answered prompt that are due, by their places: those that fit worst. Asked once of each prompt;
        what is told is due again after twice as many misfits, whatever becomes of it.
        """
        misfits = {_name(chunk): chunk for chunk in plan.chunks if _misfits(chunk)}  # a copy counts once
        with self._lock:
            due = [(name, chunk) for name, chunk in misfits.items() if self._is_due(name)]
            due.sort(key=lambda one: -one[1].candidates[0].reuse.cfo())
            for name, _ in due[:AT_ONCE]:
                self._misfits[name] = 0, min(LONGEST, 2 * self._misfits[name][1])
            while len(self._misfits) > REMEMBERED:
                self._misfits.popitem(last=False)
        return {chunk.index for _, chunk in due[:AT_ONCE]}

    def done(self, seconds: float) -> None:
        with self._lock:
            self.captured, self.seconds = self.captured + 1, self.seconds + seconds

    def _is_due(self, name: str) -> bool:
        met, needed = self._misfits.pop(name, (0, self._times))
        self._misfits[name] = met + 1, needed
        return met + 1 >= needed


def _name(chunk: PlannedChunk) -> str:
    return f"{chunk.segment.hash} {chunk.segment.border}"


def _may_misfit(chunk: ChunkReport) -> bool:
    """CCI is one at most."""
    return chunk.tier not in (COMPUTED, PREFIX) and not chunk.exact and 1.0 - chunk.overlap >= MISFIT


def _misfits(chunk: PlannedChunk) -> bool:
    """What was computed behind another System segment is captured behind the prompt's own anyway."""
    if not chunk.candidates or len(chunk.segment) < LEAST_TOKENS:
        return False
    best = chunk.candidates[0]
    return not (best.unchanged or best.system_gone) and best.reuse.cfo() >= MISFIT
