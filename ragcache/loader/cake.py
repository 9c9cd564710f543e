"""Cake: the engine computes from the front while threads load from the back, until they meet (Jin et al., ICML 2025).

Algorithm 1 with its two pointers: the taker asks after each slice that it computes whether it is to compute another
one; the readers take the last piece that nobody has begun, by themselves. What is in RAM is handed over at once. Unlike
in the paper, no slice is begun that takes longer than all that is left takes to come, and what a slice overtakes is
read no further: where one side is far the quicker, it alone works.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

from ragcache.errors import FAULTS
from ragcache.loader import SYSTEM, Delivery, Loader, Loading, SegmentPiece
from ragcache.loader.reading import Pace, bring
from ragcache.loader.sequential import delivered
from ragcache.loader.threads import Clock, DiskThreads, Task
from ragcache.policy import Rates
from ragcache.store.base import RAM, KVStore

DEPTH = 2  # pieces of a prompt that are read at a time: one waits for the disk while another is decoded
AHEAD = 4  # that are read or have been, and are not placed yet: a whole prompt would be held twice
# Of what is left to load, that a slice may take at most: estimates err, and a slice begun is not given up.
MARGIN = 0.9
LATE = 1.5  # times what was expected


@dataclass(frozen=True)
class Outlook:
    """When what is left comes, if nothing more is computed. All in seconds."""

    waiting: float  # to read what nobody has begun
    reading: float  # what is read now takes, in all
    so_far: float  # since a piece came, or the first was begun

    @property
    def overdue(self) -> float:
        """For so long nothing has come, where that is too long."""
        return self.so_far if self.so_far > LATE * self.reading else 0.0

    @property
    def left(self) -> float:
        return self.waiting + self.brought(self.reading)

    def brought(self, reading: float) -> float:
        """Until what takes so long, and is read now, is here. What is late is taken to need as long again."""
        return self.overdue or max(0.0, reading - self.so_far)

    def allows(self, seconds: float, left: float, *, final: bool) -> bool:
        """To compute for so long what comes in `left`; see `Loading.claim`."""
        return seconds <= MARGIN * left if final else seconds < self.overdue


class CakeLoader(Loader):
    """Threads may share it, and so do all prompts its disk."""

    overlaps: ClassVar[bool] = True

    def __init__(
        self,
        threads: DiskThreads,
        *,
        pace: Pace | None = None,
        clock: Clock = perf_counter,
        ahead: int = AHEAD,
        waits: bool = True,
    ):
        """`waits`: whoever takes may wait for a disk, where something is in RAM no more."""
        self._threads, self._pace, self._clock, self._ahead, self._waits = threads, pace, clock, ahead, waits

    def begin(self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None) -> Loading:
        return _Meeting(
            self._threads, pieces, store, rates or Rates(), self._pace, self._clock, self._ahead, self._waits
        )

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
        ahead: int,
        waits: bool,
    ):
        self._threads, self._store, self._rates, self._pace, self._clock = threads, store, rates, pace, clock
        self._ahead = ahead
        self._lock = threading.Lock()
        near = [piece for piece in pieces if piece.tier == RAM]
        self._near = deque(near if waits else ())
        # In the order of the prompt, of which nothing is begun. What all others stand behind is read first.
        self._left = deque(piece for piece in pieces if piece.tier != RAM and piece.index != SYSTEM)
        self._first = deque(() if waits else near)
        self._first.extend(piece for piece in pieces if piece.tier != RAM and piece.index == SYSTEM)
        self._reads: list[_Read] = []
        self._moved = clock()  # when the last read ended, or the first began
        self._read_on()

    # -- the readers' side ------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Begin what may be begun."""
        while True:
            with self._lock:
                if not (self._first or self._left) or len(self._reads) >= self._ahead:
                    return
                if sum(not read.ended for read in self._reads) >= DEPTH:
                    return
                piece = self._first.popleft() if self._first else self._left.pop()
                read = _Read(piece, self._seconds(piece))
                if all(one.ended for one in self._reads):
                    self._moved = self._clock()
                # Under the lock: who finds it in the list finds its task. No piece is lost, whatever fails.
                self._reads.append(read)
                try:
                    read.task = self._threads.submit(partial(self._bring, read))
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

    # -- the taker's side -------------------------------------------------------------------------------------------

    def take(self) -> Delivery | None:
        if self._near:
            return bring(self._store, self._near.popleft(), self._pace)
        self._read_on()  # a thread that could not be had begins nothing after it
        # From the back, one after the other: what has come meets what is computed, and leaves no gap.
        # Where one of them stops, what has come before it does not wait.
        for read in self._reads[: None if self._outlook.overdue else 1]:
            if read.task.future.done() or self._threads.late(read.task):
                found = delivered(self._threads, read.piece, read.task)
                self._forget(read)
                return found
        return None

    def claim(self, piece: SegmentPiece, seconds: float, *, final: bool = True) -> bool:
        with self._lock:
            outlook = self._outlook
            # All else stands behind the System segment: it is computed where that is sooner than bringing it alone.
            left = outlook.brought(self._seconds(piece)) if piece.index == SYSTEM else outlook.left
            if not outlook.allows(seconds, left, final=final):
                return False
            for waiting in (self._first, self._left):
                if final and piece in waiting:
                    waiting.remove(piece)
                    return True
            read = next((one for one in self._reads if one.piece is piece), None)
            if read is None or read.task.future.done():
                return False
        if outlook.overdue:
            self._rates.observe_load(piece.tier, piece.nbytes, outlook.overdue)
        self._give_up(read)
        return True

    @property
    def _outlook(self) -> Outlook:
        waiting = sum(self._seconds(piece) for piece in (*self._first, *self._left))
        reading = sum(read.expected for read in self._reads if not read.ended)
        return Outlook(waiting, reading, self._clock() - self._moved)

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

    def drop(self, index: int) -> None:
        with self._lock:
            self._clear(index)
        for read in [one for one in self._reads if one.piece.index == index]:
            self._give_up(read)

    def stop(self) -> None:
        with self._lock:
            self._clear()
        for read in list(self._reads):
            self._give_up(read)

    def _clear(self, index: int | None = None) -> None:
        """All that nobody has begun, or one of them."""
        for waiting in (self._near, self._first, self._left):
            kept = [] if index is None else [piece for piece in waiting if piece.index != index]
            waiting.clear()
            waiting.extend(kept)

    def _give_up(self, read: _Read) -> None:
        self._forget(read)
        if not read.task.future.done():
            self._threads.give_up(read.task)
