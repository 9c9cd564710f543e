"""The plain loader: each piece whole, one after the other. The reference for any cleverer one.

Threads may wait for a disk in place of the engine's own; what they read is waited for only so long.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import Any, Generic, TypeVar

from ragcache.errors import FAULTS, HandingOver, StoreError, reason_of
from ragcache.loader import Block, Delivery, Loader, Loading, PieceLoaded, SegmentPiece
from ragcache.store.base import KVStore, OpenEntry

T = TypeVar("T")
Clock = Callable[[], float]
Errand = tuple[Future[Any], Callable[[], object]]
CLOSING_S = 5.0  # for those that compute with what they have read; one that waits for its disk is left behind
logger = logging.getLogger(__name__)
LOSSY = "cache entry not used: it has lost something at rest, and others may share its place"


@dataclass(eq=False)
class Task(Generic[T]):
    asked: float
    future: Future[T] = field(default_factory=Future)
    begun: float | None = None  # when a thread took it up


class DiskThreads:
    """Threads may share it. Python waits for the threads of its own pools when the program ends, which one that is at a
    disk that does not answer would put off for ever.

    A task's time counts from when a thread takes it up: that a step took long, or that there were many before it, is no
    sign of a bad disk. While none is taken up or finished at all, it counts from the last one that was.
    """

    def __init__(
        self,
        count: int,
        name: str,
        limit_s: float,
        clock: Clock = perf_counter,
        initializer: Callable[[], None] | None = None,
    ):
        self._errands: SimpleQueue[Errand | None] = SimpleQueue()  # None ends the threads
        self._name, self._initializer = name, initializer or (lambda: None)
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._lock = threading.Lock()
        weakref.finalize(self, self._errands.put, None)
        self._count, self._limit_s, self._clock = count, limit_s, clock
        self._moved = clock()
        self._given_up: set[Task[Any]] = set()  # and a thread is still at them

    def submit(self, call: Callable[[], T]) -> Task[T]:
        """Where no thread will come to it, its future holds a StoreError at once."""
        task: Task[T] = Task(self._clock())
        with self._lock:
            self._given_up = given_up = {one for one in self._given_up if not one.future.done()}
        # Given up is not late: its client may have gone away a moment after it began.
        if sum(map(self.late, given_up)) >= self._count:
            task.future.set_exception(StoreError(f"it has not answered for {self._limit_s:g} s: look at its disk"))
            return task
        if self._closed:
            task.future.set_exception(StoreError("the engine ends"))
            return task
        self._errands.put((task.future, lambda: self._run(task, call)))
        with self._lock:
            if len(self._threads) < self._count:
                self._add_thread()
        return task

    def _add_thread(self) -> None:
        arguments = (self._errands, self._initializer)
        thread = threading.Thread(target=_serve, args=arguments, name=self._name, daemon=True)
        with suppress(RuntimeError):  # no thread is to be had now: the task waits for another, or is late
            thread.start()
            self._threads.append(thread)

    def _run(self, task: Task[T], call: Callable[[], T]) -> None:
        if not task.future.set_running_or_notify_cancel():
            return
        task.begun = self._moved = self._clock()
        try:
            with HandingOver(task.future):
                task.future.set_result(call())
        finally:
            self._moved = self._clock()

    def late(self, task: Task[T]) -> bool:
        since = max(task.asked, self._moved) if task.begun is None else task.begun
        return not task.future.done() and self._clock() - since > self._limit_s

    def give_up(self, task: Task[T]) -> None:
        """Nobody waits for it any more."""
        if not task.future.cancel():
            with self._lock:
                self._given_up = {*self._given_up, task}

    def close(self) -> None:
        """What no thread has taken up is cancelled."""
        self._closed = True
        with suppress(Empty):
            while (errand := self._errands.get_nowait()) is not None:
                errand[0].cancel()
        self._errands.put(None)
        last = monotonic() + CLOSING_S
        for thread in self._threads:
            thread.join(max(0.0, last - monotonic()))


def _serve(errands: SimpleQueue[Errand | None], initializer: Callable[[], None]) -> None:
    """On a thread. It knows nothing of the object that began it, which may be gone."""
    initializer()
    while (errand := errands.get()) is not None:
        errand[1]()
        del errand  # which knows it
    errands.put(None)  # for the next thread


class SequentialLoader(Loader):
    """Reads on the thread that takes, or on threads that may wait for the disk in its place."""

    def __init__(self, threads: DiskThreads | None = None, *, front: int = 0):
        """`front` chunks are left to be computed even where they are cached."""
        self._threads, self._front = threads, front

    def begin(self, pieces: Sequence[SegmentPiece], store: KVStore) -> Loading:
        calls = [(piece, partial(self._bring, store, piece)) for piece in pieces]
        if self._threads is None:
            return InTurn(call for _, call in calls)
        return _OnThreads(self._threads, [(piece, self._threads.submit(call)) for piece, call in calls])

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _bring(self, store: KVStore, piece: SegmentPiece) -> Delivery:
        return bring(store, piece) if not 0 <= piece.index < self._front else nothing(piece)


class InTurn(Loading):
    """Each is delivered as it is taken, on the thread that takes it."""

    def __init__(self, calls: Iterable[Callable[[], Delivery]]):
        self._left = deque(calls)

    def take(self) -> Delivery | None:
        return self._left.popleft()() if self._left else None

    @property
    def ended(self) -> bool:
        return not self._left

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        return ()

    def stop(self) -> None:
        self._left.clear()


class _OnThreads(Loading):
    """Nothing is waited for longer than the threads allow."""

    def __init__(self, threads: DiskThreads, reading: list[tuple[SegmentPiece, Task[Delivery]]]):
        self._threads, self._reading = threads, reading

    def take(self) -> Delivery | None:
        for place, (piece, task) in enumerate(self._reading):
            if task.future.done() or self._threads.late(task):
                del self._reading[place]
                return self._delivered(piece, task)
        return None

    def _delivered(self, piece: SegmentPiece, task: Task[Delivery]) -> Delivery:
        if not task.future.done():
            self._threads.give_up(task)
            return nothing(piece, "a cached segment was not loaded in time, and is computed")
        try:
            return task.future.result()
        except FAULTS as error:
            return nothing(piece, unused(error))

    @property
    def ended(self) -> bool:
        return not self._reading

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        return [task.future for _, task in self._reading]

    def stop(self) -> None:
        for _, task in self._reading:
            if not task.future.done():
                self._threads.give_up(task)
        self._reading.clear()


def bring(store: KVStore, piece: SegmentPiece) -> Delivery:
    """The first of its variants that is there and sound, in the blocks that it was stored in."""
    incidents: list[str] = []
    for chosen, key in enumerate(piece.keys):
        started = perf_counter()
        try:
            if (entry := store.open(key)) is None:
                logger.info("variant %s vanished between plan and load", key.digest[:12])
                continue
            with entry:
                origin = entry.origin()
                if piece.shared and not origin.lineage.lossless:
                    incidents.append(LOSSY)
                    continue
                blocks = tuple(_blocks(entry, piece.start))
                seconds = perf_counter() - started
        except FAULTS as error:
            incidents.append(unused(error))
            continue
        told = (entry.tier, entry.nbytes, origin.lineage.lossless, seconds, tuple(incidents))
        return Delivery(piece, blocks, PieceLoaded(piece.index, chosen, *told), origin)
    return nothing(piece, *incidents)


def _blocks(entry: OpenEntry, start: int) -> Iterator[Block]:
    for number, span in enumerate(entry.blocks):
        yield Block(start + span.start, 0, *entry.read(number, range(entry.shape[0])))


def nothing(piece: SegmentPiece, *incidents: str) -> Delivery:
    """The end of a piece that is to be computed."""
    return Delivery(piece, loaded=PieceLoaded(piece.index, None, incidents=incidents))


def unused(error: Exception) -> str:
    told = f"cache entry not used: {reason_of(error)}"
    logger.warning("%s", told)
    return told
