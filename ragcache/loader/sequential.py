"""The plain loader: each piece whole, one after the other. The reference for any cleverer one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from ragcache.errors import FAULTS
from ragcache.loader import SYSTEM, Delivery, Loader, Loading, SegmentPiece
from ragcache.loader.beside import apart
from ragcache.loader.reading import AHEAD_BYTES, Pace, Unwanted, at_hand, bring, nothing, unused
from ragcache.loader.threads import DiskThreads, Task
from ragcache.policy import Rates
from ragcache.store.base import KVStore

LATE_ONES = 2  # reads of a prompt in a row that were late: its others are not waited for
LATE = "a cached segment was not loaded in time, and is computed"


class SequentialLoader(Loader):
    """Reads on the thread that takes, or on threads that may wait for the disk in its place."""

    def __init__(
        self, threads: DiskThreads | None = None, *, front: int = 0, system: bool = False, pace: Pace | None = None
    ):
        """`front` chunks are left to be computed even where they are cached, and with `system` that segment too."""
        self._threads, self._front, self._system, self._pace = threads, front, system, pace

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        first = SYSTEM if self._system else 0
        front = [piece for piece in pieces if first <= piece.index < self._front]
        loaded = [piece for piece in pieces if piece not in front]
        if self._threads is None:
            loading: Loading = InTurn(partial(bring, store, piece, self._pace) for piece in loaded)
        else:
            threads, pace = self._threads, self._pace
            loading = apart(loaded, lambda some: _OnThreads(threads, some, store, pace))
        return _BehindFront(front, loading) if front else loading

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()


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

    def drop(self, index: int, until: int | None = None) -> None:
        """It comes all the same."""

    def stop(self) -> None:
        self._left.clear()


class _OnThreads(Loading):
    """Nothing is waited for longer than the threads allow, and what is in RAM not at all."""

    def __init__(self, threads: DiskThreads, pieces: Sequence[SegmentPiece], store: KVStore, pace: Pace | None):
        self._threads, self._store, self._pace = threads, store, pace
        found = [(piece, at_hand(store, piece)) for piece in pieces]
        self._near = deque(delivery for _, delivery in found if delivery is not None)
        self._reading: list[tuple[SegmentPiece, Task[Delivery]]] = []
        self._left = deque(piece for piece, delivery in found if delivery is None)
        self._patience = Patience(threads)
        self._read_on()

    def _read_on(self) -> None:
        """Begin what may be begun."""
        while self._left and sum(piece.nbytes for piece, _ in self._reading) < AHEAD_BYTES:
            piece = self._left.popleft()
            call = partial(bring, self._store, piece, self._pace)
            task = self._threads.submit(call, self, far=piece.is_far)
            self._reading.append((piece, task))

    def take(self) -> Delivery | None:
        if self._near:
            return self._near.popleft()
        for place, (piece, task) in enumerate(self._reading):
            if task.future.done() or self._threads.late(task):
                del self._reading[place]
                delivery = self._patience.delivered(piece, task)
                if self._patience.ended:
                    self._near += map(given_up, self._left)
                    self._left.clear()
                self._read_on()
                return delivery
        return None

    @property
    def ended(self) -> bool:
        return not (self._near or self._reading or self._left)

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        return [task.future for _, task in self._reading]

    def drop(self, index: int, until: int | None = None) -> None:
        if until is not None:
            return
        self._near = deque(one for one in self._near if one.piece.index != index)
        self._left = deque(piece for piece in self._left if piece.index != index)
        self._give_up([one for one in self._reading if one[0].index == index])
        self._read_on()

    def stop(self) -> None:
        self._near.clear()
        self._left.clear()
        self._give_up(list(self._reading))

    def _give_up(self, reading: Sequence[tuple[SegmentPiece, Task[Delivery]]]) -> None:
        for one in reading:
            self._reading.remove(one)
            if not one[1].future.done():
                self._threads.give_up(one[1])


def given_up(piece: SegmentPiece) -> Delivery:
    return nothing(piece, LATE)


class Patience:
    """Of one prompt with its disk. One file may be bad; that of all others each costs the limit, nobody waits for."""

    def __init__(self, threads: DiskThreads):
        self._threads, self._late = threads, 0

    @property
    def ended(self) -> bool:
        return self._late >= LATE_ONES

    def delivered(self, piece: SegmentPiece, task: Task[Delivery]) -> Delivery:
        """Of a task that is done or late."""
        if not task.future.done():
            self._late += 1
            self._threads.give_up(task)
            return given_up(piece)
        self._late = 0
        try:
            return task.future.result()
        except Unwanted:  # it was given up at the moment that it came
            return given_up(piece)
        except FAULTS as error:
            return nothing(piece, unused(error))


class _BehindFront(Loading):
    """All but some leading chunks, which the taker claims, or gets nothing of."""

    def __init__(self, front: Sequence[SegmentPiece], loading: Loading):
        self._front, self._loading = deque(front), loading
        self._offered = False

    def take(self) -> Delivery | None:
        if not self._loading.ended:
            return self._loading.take()
        if self._front and self._offered:
            return nothing(self._front.popleft())
        self._offered = bool(self._front)
        return None

    def claim(self, piece: SegmentPiece, seconds: float, *, final: bool = True, until: int | None = None) -> bool:
        if piece not in self._front:
            return False
        if until is None:
            self._front.remove(piece)
        self._offered = False
        return True

    @property
    def ended(self) -> bool:
        return self._loading.ended and not self._front

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        return self._loading.awaited

    def drop(self, index: int, until: int | None = None) -> None:
        if until is None:
            self._front = deque(piece for piece in self._front if piece.index != index)
        self._loading.drop(index, until)

    def stop(self) -> None:
        self._front.clear()
        self._loading.stop()
