"""The plain loader: each piece whole, one after the other. The reference for any cleverer one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from time import perf_counter
from typing import Any

from ragcache.errors import FAULTS, reason_of
from ragcache.loader import Block, Delivery, Loader, Loading, PieceLoaded, SegmentPiece
from ragcache.loader.threads import DiskThreads, Task
from ragcache.store.base import KVStore, OpenEntry

logger = logging.getLogger(__name__)
LOSSY = "cache entry not used: it has lost something at rest, and others may share its place"


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
