"""Entries on their way from the bucket: each is brought once, whoever wants it, and looked at before it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from time import monotonic

from ragcache.errors import FAULTS, CorruptEntry, UnreadableObject
from ragcache.store.background import Background
from ragcache.store.entry import EntryReader
from ragcache.store.format import Header
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.catalog import BucketCatalog
from ragcache.store.remote.names import ObjectPlace
from ragcache.types import Variant

MOST_AHEAD = 1 << 30  # bytes on their way at once and ahead of their prompts; what a prompt waits for always comes
MOST_HELD = 256 << 20  # bytes that have come, and wait for the disk
RECHECK_S = 0.05  # what is brought ahead may be given up meanwhile
FETCH_S = 20.0  # for which a prompt waits; who loads beside computing does not wait as long


@dataclass(eq=False)
class Arrival:
    """One entry's. The first who has it looks at it."""

    place: ObjectPlace
    data: Future[memoryview | None]
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: int = 0  # whom it is for
    ended: bool = False
    variant: Variant | None = None
    file: tuple[Header, memoryview] | None = None


class Arrivals:
    """Threads may share it. `has_gone` says what was deleted meanwhile; `keep` puts what has come on the disk, on a
    thread of its own: a prompt does not wait until what it has in hand is written.
    """

    def __init__(
        self,
        bucket: Bucket,
        catalog: BucketCatalog,
        has_gone: Callable[[Variant], bool],
        keep: Callable[[Header, memoryview, Variant], None],
        heads: slice | None = None,
    ):
        """`heads`: those K/V heads that variants have here; None is all."""
        self._heads = heads
        self._bucket, self._catalog, self._has_gone, self._keep = bucket, catalog, has_gone, keep
        self._keeping = Background()
        self._lock = threading.Lock()
        self._coming: dict[str, Arrival] = {}  # by path
        self._held = 0  # bytes that have come and are not kept yet

    def begin(self, place: ObjectPlace, *, ahead: bool = False) -> Arrival | None:
        """To be ended by `take` or `leave`. None: there is no room for what comes `ahead` of its prompt."""
        with self._lock:
            arrival = self._coming.get(place.path)
            if arrival is None:
                if ahead and sum(one.place.size for one in self._coming.values()) + place.size > MOST_AHEAD:
                    return None
                data = self._bucket.submit(self._bucket.read_whole(place))
                arrival = self._coming[place.path] = Arrival(place, data)
            arrival.waiting += 1
        return arrival

    def take(self, arrival: Arrival, wanted: Callable[[], bool] = lambda: True) -> Variant | None:
        """The variant, kept nearer from soon on; None where it has gone, or is not wanted. Raises CorruptEntry,
        ForeignEntry and RemoteError.
        """
        try:
            late = monotonic() + FETCH_S
            while not wait([arrival.data], RECHECK_S).done and wanted():
                if monotonic() > late:
                    self._catalog.put_off(arrival.place)
                    where = self._catalog.where(arrival.place)
                    raise self._bucket.reading.failed(f"{where} did not come in {FETCH_S:g} s")
            if not arrival.data.done():
                return None
            data = arrival.data.result()
            with arrival.lock:  # one looks at it, for all
                if not arrival.ended:
                    arrival.ended = True
                    if data is not None:
                        self._look_at(arrival, data)
            return arrival.variant
        except UnreadableObject:
            self._catalog.put_off(arrival.place)
            raise
        finally:
            self.leave(arrival)

    def leave(self, arrival: Arrival) -> None:
        """What nobody waits for any more is given up."""
        with self._lock:
            arrival.waiting -= 1
            if arrival.waiting > 0:
                return
            if self._coming.get(arrival.place.path) is arrival:
                del self._coming[arrival.place.path]
        arrival.data.cancel()

    def settle(self) -> None:
        """Wait until what has come is kept."""
        self._keeping.settle()

    def _look_at(self, arrival: Arrival, data: memoryview) -> None:
        place = arrival.place
        try:
            if len(data) != place.size:
                raise CorruptEntry(f"{self._catalog.where(place)} is cut short: {len(data)} of {place.size} bytes")
            reader = EntryReader.held(data, self._catalog.where(place), self._heads)
            self._catalog.check(reader, place)
            variant = reader.variant()
        except (MemoryError, RuntimeError, OSError):  # torch's where memory is short: the object may be sound
            self._catalog.put_off(place)
            raise
        except FAULTS as error:
            self._catalog.refuse(place, error)
            raise
        if self._has_gone(variant):
            return
        arrival.file, arrival.variant = (reader.header, data), variant
        with self._lock:
            arrival.waiting += 1  # until it is kept: whoever wants it meanwhile has it from here
            self._held += place.size
            is_much = self._held > MOST_HELD
        if is_much:  # the disk is the slower one: whoever brings more waits for it
            self._kept(arrival)
        else:
            self._keeping.add(self._kept, arrival)

    def _kept(self, arrival: Arrival) -> None:
        try:
            assert arrival.file is not None
            assert arrival.variant is not None
            self._keep(*arrival.file, arrival.variant)
        finally:
            with self._lock:
                self._held -= arrival.place.size
            self.leave(arrival)
