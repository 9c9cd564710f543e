"""Layer by layer: the engine computes over the lower layers of a prompt while the upper ones still come (Cache-Craft,
section 3.4.2, and algorithm 2 there).

Each piece is read from its first layer up, all of them in turns. The engine begins once so many layers are there that
the others come while it computes (equation 16); where one does not, it waits amid the prompt.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from math import ceil
from time import perf_counter
from typing import Any

from ragcache.errors import FAULTS
from ragcache.loader import RECHECK_S, Delivery, Loader, Loading, PieceLost, SegmentPiece
from ragcache.loader.climb import Climb, Part
from ragcache.loader.errands import Clock
from ragcache.loader.reading import AHEAD_BYTES, Pace, at_hand, nothing, unused
from ragcache.loader.sequential import LATE, LATE_ONES, SequentialLoader
from ragcache.loader.threads import READERS, DiskThreads, Task
from ragcache.rates import Rates
from ragcache.store.base import KVStore, OpenEntry
from ragcache.store.nearness import Beyond

DEPTH = READERS  # reads of a prompt at a time


def preload_depth(layers: int, computing: float, loading: float) -> int:
    """Layers to bring before the first is computed over, so that no later one is waited for. Equation 16."""
    if computing <= 0.0:  # whoever takes computes nothing over them, or does not know of layers that are late
        return layers
    if loading <= computing:
        return 1
    return min(layers, ceil((layers - 1) * (1.0 - computing / loading)) + 1)


class LayerwiseLoader(Loader):
    """Threads may share it, and so do all prompts its disk. It leaves nothing to be computed that comes."""

    def __init__(self, threads: DiskThreads, *, pace: Pace | None = None, clock: Clock = perf_counter):
        self._threads, self._pace, self._clock = threads, pace, clock

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        return _Layers(self._threads, pieces, store, rates or Rates(), linking, self._pace, self._clock)

    @property
    def whole(self) -> Loader:
        return SequentialLoader(self._threads, pace=self._pace)

    def close(self) -> None:
        self._threads.close()


class _Layers(Loading):
    """Of one prompt. One thread takes; the readers go on by themselves while it computes."""

    def __init__(
        self,
        threads: DiskThreads,
        pieces: Sequence[SegmentPiece],
        store: KVStore,
        rates: Rates,
        linking: float,
        pace: Pace | None,
        clock: Clock,
    ):
        self._threads, self._store, self._pace, self._clock = threads, store, pace, clock
        self._computing, self._loading = linking, sum(rates.load_seconds(one.tier, one.nbytes) for one in pieces)
        self._lock = threading.Lock()
        found = [(piece, at_hand(store, piece)) for piece in pieces]
        self._near = deque(delivery for _, delivery in found if delivery is not None)
        self._climbs = [Climb(piece, is_far=piece.is_far) for piece, delivery in found if delivery is None]
        # Those with a part to begin, that with the fewest layers first.
        self._next = [(0, place, climb) for place, climb in enumerate(self._climbs)]
        self._floor = 0  # the taker waits for this layer
        self._late = Counter[bool]()  # pieces in a row that were, from near and from far
        self._moved = clock()  # when the last read ended, or the first began
        self._read_on()

    # -- the readers' side ------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Begin what may be begun."""
        while True:
            with self._lock:
                held = sum(part.nbytes for climb in self._climbs for part in climb.parts)
                if (found := self._next_climb()) is None or (held >= AHEAD_BYTES and found[0] > self._floor):
                    return
                self._next.remove(found)
                _, place, climb = found
                if all(one.task is None for one in self._climbs):
                    self._moved = self._clock()
                try:
                    climb.task = self._threads.submit(partial(self._climb, climb, place), self, far=climb.is_far)
                except FAULTS as error:
                    climb.task = Task(self._clock())
                    climb.task.future.set_exception(error)

    def _next_climb(self) -> tuple[int, int, Climb] | None:
        """Where the network is busy with what is far, the disk goes on with what is not, and the other way round."""
        self._next = [one for one in self._next if one[2].wanted]
        busy = Counter(climb.is_far for climb in self._climbs if climb.task is not None)
        return min((one for one in self._next if busy[one[2].is_far] < DEPTH), default=None)

    def _climb(self, climb: Climb, place: int) -> None:
        """On a thread: one part."""
        with self._lock:
            if not climb.wanted:
                return
            climb.reading = True
        began, part, ended = self._clock(), None, True
        try:
            part = climb.next(self._store, self._pace)
        except Beyond:
            ended, climb.is_far = False, True
            raise
        except FAULTS as error:
            climb.incidents.append(unused(error))
        finally:
            with self._lock:
                climb.reading = False
                done = self._ended(climb, place, part, began) if ended else None
            if done is not None:  # it may rise into RAM, which asks the disk: nobody waits for that with the lock
                done.close()
            self._read_on()

    def _ended(self, climb: Climb, place: int, part: Part | None, began: float) -> OpenEntry | None:
        """Of one part, None where it did not come -> what is to be closed, once there is nothing more to read."""
        # What it adds to those before it: they may have been read at the same time.
        now = self._clock()
        climb.seconds += max(0.0, now - max(began, self._moved))
        climb.span = (climb.span[0] if climb.span else began, now)
        self._moved, climb.task = now, None
        climb.lost = climb.lost or part is None
        if part is not None:
            climb.parts += [part] if climb.wanted else []
            climb.read = part.end
            self._late[climb.is_far] = 0
        if climb.lost or not climb.wanted or climb.read == climb.layers:
            return climb.taken_off()
        self._next.append((climb.read, place, climb))
        return None

    # -- the taker's side -------------------------------------------------------------------------------------------

    def take(self) -> Delivery | None:
        if self._near:
            return self._near.popleft()
        self._read_on()  # a thread that could not be had begins nothing after it
        for climb in self._climbs:
            if not climb.told and (found := self._lower(climb)) is not None:
                return found
        return None

    def _lower(self, climb: Climb) -> Delivery | None:
        """Of the layers that come before the first is computed over."""
        if self._is_lost(climb):
            climb.told = True
            self._give_up(climb)
            return nothing(climb.piece, *climb.incidents)
        with self._lock:
            if not climb.parts:
                return None
            depth = preload_depth(climb.layers, self._computing, self._loading)
            self._floor = max(self._floor, depth - 1)
        found = self._handed_over(climb)
        climb.told = climb.placed >= depth
        if climb.told and found.loaded is None:
            found = Delivery(found.piece, found.blocks, climb.loaded(whole=False), climb.origin)
        return found

    def _handed_over(self, climb: Climb) -> Delivery:
        """The next of its parts. The last one tells how it was read."""
        with self._lock:
            part = climb.parts.popleft()
            climb.placed = part.end
        self._read_on()  # while it is placed
        whole = climb.loaded(whole=True) if climb.placed == climb.layers else None
        return Delivery(climb.piece, part.blocks, whole, climb.origin)

    def _is_lost(self, climb: Climb) -> bool:
        """Also where it does not come in time, all of its reading together: after some such in a row the others, which
        the disk has not given by then, are not waited for as long again.
        """
        with self._lock:
            if climb.lost or climb.parts:
                return climb.lost
            task, far = climb.task, climb.is_far
            given_up = self._late[far] >= LATE_ONES
        if task is not None and task.future.done() and (error := task.future.exception()) is not None:
            if not isinstance(error, FAULTS):
                raise error
            climb.incidents.append(unused(error))
            climb.lost = True
        elif given_up or self._threads.lasts(climb.seconds) or (task is not None and self._threads.late(task)):
            with self._lock:
                if climb.parts:  # meanwhile
                    return False
                self._late[far] += 1
                climb.lost = True
            climb.incidents.append(LATE)
        return climb.lost

    @property
    def lags(self) -> bool:
        return any(climb.told and climb.wanted and climb.placed < climb.layers for climb in self._climbs)

    def layer(self, layer: int) -> Iterator[Delivery]:
        with self._lock:
            self._floor = max(self._floor, layer)
        for climb in self._climbs:
            while climb.told and climb.wanted and climb.placed < min(layer + 1, climb.layers):
                if climb.parts:
                    yield self._handed_over(climb)
                elif self._is_lost(climb):
                    raise PieceLost(climb.incidents[-1])
                else:
                    self._read_on()
                    wait(self.awaited, RECHECK_S, FIRST_COMPLETED)

    @property
    def ended(self) -> bool:
        return not self._near and all(climb.told for climb in self._climbs)

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        with self._lock:
            return [climb.task.future for climb in self._climbs if climb.task is not None]

    def drop(self, index: int, until: int | None = None) -> None:
        if until is not None:
            return
        self._near = deque(one for one in self._near if one.piece.index != index)
        for climb in self._climbs:
            if climb.piece.index == index:
                climb.told = True
                self._give_up(climb)

    def stop(self) -> None:
        self._near.clear()
        for climb in self._climbs:
            climb.told = True
            self._give_up(climb)

    def _give_up(self, climb: Climb) -> None:
        with self._lock:
            climb.wanted, task, climb.task = False, climb.task, None  # another may be read instead
            climb.parts.clear()
            done = None if climb.reading else climb.taken_off()  # else whoever reads it closes it
        if done is not None:
            done.close()
        if task is not None and not task.future.done():
            self._threads.give_up(task)
