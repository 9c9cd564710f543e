"""The pieces of one prompt that Cake brings: read from the back, and computed from the front by whoever takes them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ragcache.errors import FAULTS
from ragcache.loader import SYSTEM, Delivery, Loading, SegmentPiece
from ragcache.loader.errands import Clock
from ragcache.loader.expectation import Expectation, doubt, expected, saved
from ragcache.loader.reading import AHEAD_BYTES, Pace, at_hand, bring, in_memory
from ragcache.loader.rising import Risings
from ragcache.loader.sequential import Patience, given_up
from ragcache.loader.threads import READERS, DiskThreads, Task
from ragcache.loader.waiting import Waiting
from ragcache.rates import Rates
from ragcache.store.base import KVStore
from ragcache.store.findings import RAM
from ragcache.store.nearness import Beyond
from ragcache.types import VariantKey

DEPTH = READERS  # pieces of a prompt that are read at a time


@dataclass(eq=False)
class _Read:
    """A piece that a thread has begun to read, or will when one is free."""

    piece: SegmentPiece
    wanted: bool = True
    ended: bool = False
    task: Task[Delivery] = field(init=False)

    @property
    def skipped(self) -> int | None:
        """See `bring`."""
        return self.piece.skip if self.wanted else None

    @property
    def is_far(self) -> bool:
        """Also what turned out to be."""
        return self.piece.is_far or self.task.far


class MetLoading(Loading):
    """Of one prompt. One thread takes and claims; the readers go on by themselves while it computes."""

    def __init__(
        self,
        threads: DiskThreads,
        risings: Risings,
        pieces: Sequence[SegmentPiece],
        store: KVStore,
        rates: Rates,
        pace: Pace | None,
        clock: Clock,
        ahead: int,
        claims: bool,
        turn: object,
    ):
        """`turn`: that of all prompts that wait for their engine; None of one that is taken at once."""
        self._threads, self._risings, self._store, self._rates = threads, risings, store, rates
        self._pace, self._clock = pace, clock
        self._ahead, self._claims = ahead, claims
        self._turn, self._early = turn or self, turn is not None  # until it is taken there is time to read
        self._lock = threading.Lock()
        self._near, self._left = deque[SegmentPiece](), Waiting()
        for piece in pieces:
            (self._near.append if self._may_be_at_hand(piece) else self._left.add)(piece)
        self._reads: list[_Read] = []
        self._read_in_part = list[VariantKey]()
        self._moved = clock()  # when the last read ended, or the first began
        # Behind what is linked at once nothing can be computed ahead.
        self._computes = claims and all(piece.index == SYSTEM for piece in self._near)
        self._waits = False  # nothing was there to take, and nothing was claimed since
        self._patience = Patience(threads)
        self._read_on()

    def _may_be_at_hand(self, piece: SegmentPiece) -> bool:
        """Who plans for whoever claims nothing here does not know what is in RAM here."""
        return piece.tier == RAM if self._claims else in_memory(self._store, piece)

    # -- the readers' side ------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Begin what may be begun."""
        while True:
            with self._lock:
                many = len(self._reads) >= self._ahead and not self._early
                piece = None if self._gives_up or many else self._next
                if piece is None or sum(read.piece.nbytes for read in self._reads) >= AHEAD_BYTES:
                    return
                if self._computes and not self._early and self._comes_too_late(piece):
                    return
                self._left.remove(piece)
                read = _Read(piece)
                if all(one.ended for one in self._reads):
                    self._moved = self._clock()
                # Under the lock: who finds it in the list finds its task. No piece is lost, whatever fails.
                self._reads.append(read)
                try:
                    read.task = self._threads.submit(partial(self._bring, read), self._turn, far=piece.is_far)
                except FAULTS as error:
                    read.task = Task(self._clock())
                    read.task.future.set_exception(error)

    def _bring(self, read: _Read) -> Delivery:
        """On a thread."""
        began, ended = self._clock(), True
        try:
            found = bring(self._store, read.piece, self._pace, lambda: read.skipped)
        except Beyond:
            ended = False
            raise
        finally:
            with self._lock:
                now = self._clock()
                # What it adds to those before it: they may have been read at the same time.
                seconds, self._moved = now - max(began, self._moved), now if ended else self._moved
                read.ended = read.ended or ended
            self._read_on()
        assert found.loaded is not None, "all of a piece is brought at once"
        return replace(found, loaded=replace(found.loaded, seconds=max(0.0, seconds)))

    @property
    def _next(self) -> SegmentPiece | None:
        """Where the network is busy with what is far, the disk goes on with what is not, and the other way round."""
        busy = Counter(read.is_far for read in self._reads if not read.ended)
        return self._left.last_of([far for far in (False, True) if busy[far] < DEPTH])

    def _comes_too_late(self, last: SegmentPiece) -> bool:
        """Whether all that is left is computed before this piece of it is here, or what is read of it first, by what is
        known of both sides.
        """
        if (work := self._left.work) is None:
            return False
        beside = [read.piece for read in self._reads if not read.ended and read.is_far == last.is_far]
        nbytes = last.behind(last.last_slice).nbytes
        computed, read = self._rates.seconds(work), self._rates.load_seconds(last.tier, nbytes)
        brought = self._expected(beside).brought + read
        return computed + doubt(self._rates, computed, brought, last.tier) < brought

    # -- the taker's side -------------------------------------------------------------------------------------------

    def take(self) -> Delivery | None:
        self._early, self._turn = False, self
        while self._near:
            piece = self._near.popleft()
            if (found := at_hand(self._store, piece)) is not None:
                return found
            self._read_after_all(piece)
        if self._gives_up:
            with self._lock:
                if self._left:
                    return given_up(self._left.pop())
        if self._waits and not self._reads:
            self._computes = False  # then all is read
        self._read_on()  # a thread that could not be had begins nothing after it
        # From the back, one after the other: what has come meets what is computed, and leaves no gap.
        # Where one of them stops, what has come before it does not wait.
        with self._lock:  # the readers change both lists
            reads = list(self._reads) if self._arrival.overdue else self._firsts
        for read in reads:
            if read.task.future.done() or self._threads.late(read.task):
                found = self._patience.delivered(read.piece, read.task)
                self._forget(read)
                if read.piece.skip and (loaded := found.loaded) is not None and loaded.chosen is not None:
                    self._read_in_part.append(read.piece.keys[loaded.chosen])
                self._waits = False
                self._read_on()  # while it is placed
                return found
        self._waits = True
        return None

    def _read_after_all(self, piece: SegmentPiece) -> None:
        """It has left RAM since it was seen there."""
        with self._lock:
            self._left.add(piece)

    def claim(self, piece: SegmentPiece, seconds: float, *, final: bool = True, until: int | None = None) -> bool:
        if not self._claims:
            return False
        with self._lock:
            arrival, self._computes = self._arrival, final
            unsure = doubt(self._rates, seconds, arrival.left, piece.tier)
            if not arrival.allows(seconds, arrival.left, unsure, final=final):
                return False
            read = self._read_of(piece.index)
            waits = piece in self._left
            if not waits and (read is None or read.task.future.done()):
                return False
            self._waits = False
            if waits and not self._reads and not self._left.of(piece.index)[0].skip:  # once of each
                self._rates.not_read(piece.tier)
            if until is not None:
                self._trim(piece.index, until)
                return True
            if waits:
                self._left.remove(piece)
                return True
        assert read is not None
        begun, as_planned = read.task.begun, read.is_far == piece.is_far
        if arrival.overdue and as_planned and begun is not None:  # not what it waited for others who share the threads
            self._rates.observe_load(piece.tier, read.piece.nbytes, self._clock() - begun)
        self._give_up(read)
        return True

    def affords(self, piece: SegmentPiece, seconds: float, until: int) -> bool:
        with self._lock:
            read = self._read_of(piece.index)
            mine = self._left.of(piece.index) if read is None else [read.piece]
            return bool(mine) and self._arrival.affords(seconds, saved(self._rates, mine[0], until))

    def _read_of(self, index: int) -> _Read | None:
        return next((one for one in self._reads if one.piece.index == index), None)

    def _trim(self, index: int, until: int) -> None:
        """All of this piece before a position is computed."""
        for piece in self._left.of(index):
            self._left.trim(piece, until)
        if (read := self._read_of(index)) is not None:
            read.piece = read.piece.behind(until)

    @property
    def _gives_up(self) -> bool:
        """Whoever claims computes what he waits for in vain."""
        return self._patience.ended and not self._claims

    @property
    def _firsts(self) -> list[_Read]:
        """Of what is far, and of what is not."""
        return list({read.is_far: read for read in reversed(self._reads)}.values())

    @property
    def _arrival(self) -> Expectation:
        return self._expected([read.piece for read in self._reads if not read.ended])

    def _expected(self, reading: Sequence[SegmentPiece]) -> Expectation:
        return expected(self._rates, self._left.seconds(self._rates), reading, self._clock() - self._moved)

    def _forget(self, read: _Read) -> None:
        with self._lock:
            read.wanted, read.ended = False, True
            self._reads.remove(read)

    @property
    def ended(self) -> bool:
        with self._lock:  # a piece is between two of them while a reader begins it
            return not (self._near or self._left or self._reads)

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        with self._lock:
            return [read.task.future for read in self._firsts]

    def drop(self, index: int, until: int | None = None) -> None:
        with self._lock:
            if until is not None:
                self._trim(index, until)
                return
            self._near = deque(piece for piece in self._near if piece.index != index)
            self._left.drop(index)
        for read in [one for one in self._reads if one.piece.index == index]:
            self._give_up(read)

    def stop(self) -> None:
        with self._lock:
            self._near, self._left = deque(), Waiting()
        for read in list(self._reads):
            self._give_up(read)
        in_part, self._read_in_part = self._read_in_part, []
        for key in in_part:  # else all who ask for it would read it from the disk, each a part
            self._risings.add(self._store, key)

    def _give_up(self, read: _Read) -> None:
        self._forget(read)
        if not read.task.future.done():
            self._threads.give_up(read.task)
