"""Cake: the engine computes from the front while threads load from the back, until they meet (Jin et al., ICML 2025).

Algorithm 1 with its two pointers: the taker asks after each slice that it computes whether it is to compute another
one; the readers take the last piece that nobody has begun, by themselves. What is in RAM is handed over at once. Unlike
in the paper, no slice is begun that takes longer than all that is left takes to come, no piece that takes longer to
come than computing all up to its end, and what a slice overtakes is read no further: where one side is far the quicker,
it alone works.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from math import hypot
from time import perf_counter
from typing import Any, ClassVar

from ragcache.errors import FAULTS
from ragcache.loader import SYSTEM, Delivery, Loader, Loading, SegmentPiece
from ragcache.loader.reading import Pace, at_hand, bring
from ragcache.loader.sequential import delivered
from ragcache.loader.threads import Clock, DiskThreads, Task
from ragcache.rates import Rates, Work
from ragcache.store.base import RAM, KVStore

DEPTH = 2  # pieces of a prompt that are read at a time: one waits for the disk while another is decoded
AHEAD = 4  # that are read or have been, and are not placed yet: a whole prompt would be held twice
AHEAD_BYTES = 256 << 20  # of them at rest; one alone may be larger
LATE = 1.5  # times what was expected: then what is read is taken to need as long again as it has taken
HOPELESS = 3.0  # times as long at most, where it took many times what was expected


class CakeLoader(Loader):
    """Threads may share it, and so do all prompts its disk."""

    overlaps: ClassVar[bool] = True

    def __init__(self, threads: DiskThreads, *, pace: Pace | None = None, clock: Clock = perf_counter):
        self._threads, self._pace, self._clock = threads, pace, clock

    def begin(self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None) -> Loading:
        return _Meeting(self._threads, pieces, store, rates or Rates(), self._pace, self._clock)

    def close(self) -> None:
        self._threads.close()


@dataclass(eq=False)
class _Read:
    """A piece that a thread has begun to read, or will when one is free."""

    piece: SegmentPiece
    expected: float  # seconds
    wanted: bool = True
    ended: bool = False
    task: Task[Delivery] = field(init=False)


class _Meeting(Loading):
    """Of one prompt. One thread takes and claims; the readers go on by themselves while it computes."""

    def __init__(
        self,
        threads: DiskThreads,
        pieces: Sequence[SegmentPiece],
        store: KVStore,
        rates: Rates,
        pace: Pace | None,
        clock: Clock,
    ):
        self._threads, self._store, self._rates, self._pace, self._clock = threads, store, rates, pace, clock
        self._lock = threading.Lock()
        self._near = deque(piece for piece in pieces if piece.tier == RAM)
        # In the order of the prompt, of which nothing is begun. What all others stand behind is read first.
        self._left = deque(piece for piece in pieces if piece.tier != RAM and piece.index != SYSTEM)
        self._first = deque(piece for piece in pieces if piece.tier != RAM and piece.index == SYSTEM)
        self._reads: list[_Read] = []
        self._moved = clock()  # when the last read ended, or the first began
        # Behind what is linked at once nothing can be computed ahead.
        self._computes = all(piece.index == SYSTEM for piece in self._near)
        self._waits = False  # nothing was there to take, and nothing was claimed since
        self._read_on()

    # -- the readers' side ------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Begin what may be begun."""
        while True:
            with self._lock:
                if not (self._first or self._left) or len(self._reads) >= AHEAD:
                    return
                if sum(not read.ended for read in self._reads) >= DEPTH:
                    return
                if sum(read.piece.nbytes for read in self._reads) >= AHEAD_BYTES:
                    return
                if not self._first and self._computes and self._comes_too_late(self._left[-1]):
                    return
                piece = self._first.popleft() if self._first else self._left.pop()
                read = _Read(piece, self._seconds(piece))
                if all(one.ended for one in self._reads):
                    self._moved = self._clock()
                # Under the lock: who finds it in the list finds its task. No piece is lost, whatever fails.
                self._reads.append(read)
                try:
                    read.task = self._threads.submit(partial(self._bring, read), self)
                except FAULTS as error:
                    read.task = Task(self._clock())
                    read.task.future.set_exception(error)

    def _bring(self, read: _Read) -> Delivery:
        """On a thread."""
        began = self._clock()
        try:
            found = bring(self._store, read.piece, self._pace, lambda: read.wanted)
        finally:
            with self._lock:
                now = self._clock()
                # What it adds to those before it: they may have been read at the same time.
                seconds, self._moved = now - max(began, self._moved), now
                read.ended = True
            self._read_on()
        assert found.loaded is not None, "all of a piece is brought at once"
        return replace(found, loaded=replace(found.loaded, seconds=max(0.0, seconds)))

    def _comes_too_late(self, last: SegmentPiece) -> bool:
        """Whether all that is left is computed before that piece is here, by what is known of both sides."""
        if not all(piece.tokens for piece in self._left):
            return False
        works = (Work.of_rows(one.start, one.start + one.tokens) + Work(passes=1) for one in self._left)
        computed, brought = self._rates.seconds(sum(works, Work())), self._brought(self._expected) + self._seconds(last)
        return computed + self._doubt(computed, brought, last.tier) < brought

    # -- the taker's side -------------------------------------------------------------------------------------------

    def take(self) -> Delivery | None:
        while self._near:
            piece = self._near.popleft()
            if (found := at_hand(self._store, piece)) is not None:
                return found
            self._read_after_all(piece)
        if self._waits and not self._reads:
            self._computes = False  # then all is read
        self._read_on()  # a thread that could not be had begins nothing after it
        # From the back, one after the other: what has come meets what is computed, and leaves no gap.
        # Where one of them stops, what has come before it does not wait.
        for read in self._reads[: None if self._overdue else 1]:
            if read.task.future.done() or self._threads.late(read.task):
                found = delivered(self._threads, read.piece, read.task)
                self._forget(read)
                self._waits = False
                self._read_on()  # while it is placed
                return found
        self._waits = True
        return None

    def _read_after_all(self, piece: SegmentPiece) -> None:
        """It has left RAM since it was seen there."""
        with self._lock:
            if piece.index == SYSTEM:
                self._first.append(piece)
            else:
                self._left = deque(sorted((*self._left, piece), key=lambda one: one.start))

    def claim(self, piece: SegmentPiece, seconds: float, *, final: bool = True) -> bool:
        with self._lock:
            # All else stands behind the System segment: it is computed where that is sooner than bringing it alone.
            left = self._brought(self._seconds(piece)) if piece.index == SYSTEM else self._remaining()
            self._computes = final
            if final and seconds + self._doubt(seconds, left, piece.tier) > left:
                return False
            for waiting in (self._first, self._left):
                if final and piece in waiting:
                    waiting.remove(piece)
                    self._waits = False
                    if not self._reads:
                        self._rates.not_read(piece.tier)
                    return True
            read = next((one for one in self._reads if one.piece is piece), None)
            overdue = self._overdue
            if read is None or read.task.future.done() or not (final or overdue > seconds):
                return False
        if overdue:
            self._rates.observe_load(piece.tier, piece.nbytes, self._clock() - self._moved)
        self._forget(read)
        self._threads.give_up(read.task)
        self._waits = False
        return True

    def _doubt(self, computing: float, loading: float, tier: str) -> float:
        """Seconds by which the two may differ otherwise than predicted: a slice begun is not given up."""
        return hypot(self._rates.spread * computing, self._rates.load_spread(tier) * loading)

    def _remaining(self) -> float:
        """Seconds until all is loaded, if nothing more is computed."""
        waiting = sum(self._seconds(piece) for piece in (*self._first, *self._left))
        return waiting + self._brought(self._expected)

    def _brought(self, expected: float) -> float:
        """Seconds until what is read now, which takes so long in all, is here."""
        return self._overdue or max(0.0, expected - (self._clock() - self._moved))

    @property
    def _overdue(self) -> float:
        """Seconds for which nothing has come, where that is too long; more where it is very much so."""
        so_far, expected = self._clock() - self._moved, self._expected
        reading = [read.piece.tier for read in self._reads if not read.ended]
        if so_far <= LATE * expected or not reading:
            return 0.0
        if expected == 0.0 or not self._rates.has_read(reading[0]):  # a first guess is many times off
            return so_far
        return so_far * min(HOPELESS, max(1.0, so_far / expected - 1.0))

    @property
    def _expected(self) -> float:
        return sum(read.expected for read in self._reads if not read.ended)

    def _seconds(self, piece: SegmentPiece) -> float:
        return self._rates.load_seconds(piece.tier, piece.nbytes)

    def _forget(self, read: _Read) -> None:
        with self._lock:
            read.wanted, read.ended = False, True
            self._reads.remove(read)

    @property
    def ended(self) -> bool:
        return not (self._near or self._first or self._left or self._reads)

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        return [read.task.future for read in self._reads[:1]]

    def stop(self) -> None:
        with self._lock:
            self._near.clear()
            self._first.clear()
            self._left.clear()
        for read in list(self._reads):
            self._forget(read)
            if not read.task.future.done():
                self._threads.give_up(read.task)
