"""What the bucket holds, as far as it was asked: families of entries, remembered for a while, what it lacks too.

A look at a family is two rounds of requests: its names, then the headers and profiles of its entries, all at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from time import monotonic

from ragcache.errors import FAULTS, CorruptEntry, ForeignEntry, NewerEntry, RemoteError, UnreadableObject
from ragcache.store.entry import EntryReader, KnownForms
from ragcache.store.eviction import VARIANTS
from ragcache.store.findings import BUCKET, Flaw
from ragcache.store.frame import Fetch
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.heads import from_head
from ragcache.store.remote.names import ObjectPlace, folder_of
from ragcache.types import VariantInfo, VariantKey

HURRIED_S = 10.0  # for which nobody waits, once the bucket was late
HELD_S, LACKED_S = 120.0, 30.0  # for which is remembered what a family has, and that there is nothing of it
MOST_FAMILIES = 4096
MOST_NBYTES = 64 << 20  # of profiles
MOST_OBJECT = 2 << 30  # bytes: no KV of 4,096 tokens of a model with 70 billion parameters has as many
MOST_BAD = 4096  # objects that are remembered as bad, or as late
LATE_S, LONGEST_LATE_S = 60.0, 3600.0  # for which an object that did not come in time is not asked for again
LOOKED_AT = 2 * VARIANTS  # of a family, the newest, or twice as many as are kept here
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteEntry:
    """An object whose header has been read."""

    place: ObjectPlace
    info: VariantInfo
    parts: frozenset[str]  # texts that had a part in it, as far as it tells


@dataclass(frozen=True)
class RemoteFamily:
    entries: tuple[RemoteEntry, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(2048 + one.info.profile.nbytes for one in self.entries)


class BucketCatalog:
    """Threads may share it."""

    def __init__(self, bucket: Bucket, level: int, forms: KnownForms, variants: int):
        """`level`: of the bucket among the tiers. `variants`: of a chunk that are kept."""
        self._bucket, self._level, self._forms = bucket, level, forms
        self._looked_at = max(LOOKED_AT, 2 * variants)
        self._lock = threading.Lock()
        self._families: OrderedDict[str, tuple[float, RemoteFamily]] = OrderedDict()  # until when
        self._looks: dict[str, tuple[float, Future[RemoteFamily]]] = {}  # under way, since when
        self._hurried_until = dict.fromkeys((False, True), 0.0)  # nobody who is patient, or not, waits: it was late
        self._nbytes = 0
        self._bad: OrderedDict[tuple[str, str], bool] = OrderedDict()  # by path and version: is it a newer version's?
        self._late: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()  # until when, and for how long
        self._flaws: list[Flaw] = []  # that nobody was told of

    def known(self, family: str) -> RemoteFamily | None:
        with self._lock:
            until, found = self._families.get(family, (0.0, None))
            return found if monotonic() < until else None

    def look(self, family: str, seconds: float = 0.0, *, patient: bool = False) -> RemoteFamily | None:
        """What is known by now, or so many seconds after it was first asked for; None where nothing is. Raises nothing:
        what goes wrong, the bucket's health tells. Once the bucket was late for one who is as `patient`, nobody waits
        for a while.
        """
        if (found := self.known(family)) is not None:
            return found
        with self._lock:
            known = self._looks.get(family)
            under_way = known or (monotonic(), self._bucket.submit(self._looked(family)))
            self._looks[family] = under_way
            is_hurried = monotonic() < self._hurried_until[patient]
            left = 0.0 if is_hurried else under_way[0] + seconds - monotonic()
        asked, future = under_way
        if known is None:  # not under the lock: where it has ended by now, it is remembered at once
            future.add_done_callback(lambda ended: self._remember(family, asked, ended))
        try:
            return future.result(max(0.0, left))
        except Late:  # it goes on, for the next prompt
            if left > 0:
                self._hurried_until[patient] = monotonic() + HURRIED_S
        except FAULTS:
            self._remember(family, asked, future)
        return None

    def forget(self, family: str) -> None:
        with self._lock:
            _, gone = self._families.pop(family, (0.0, RemoteFamily()))
            self._nbytes -= gone.nbytes
            self._looks.pop(family, None)  # what it found may be older

    def refuse(self, place: ObjectPlace, error: Exception) -> None:
        """A bad object, or a newer version's: it is used no more, and told of once."""
        with self._lock:
            if (place.path, place.version) in self._bad:
                return
            self._bad[place.path, place.version] = isinstance(error, NewerEntry)
            while len(self._bad) > MOST_BAD:
                self._bad.popitem(last=False)
            self._flaws = [*self._flaws, Flaw(f"{self._bucket.url}/{place.path}", str(error))][-LOOKED_AT:]
        _log.warning("not used: %s", error)
        self.forget(place.family)

    def put_off(self, place: ObjectPlace) -> None:
        """It did not come in time, or cannot be read, though the bucket answers: each prompt would wait for it from its
        beginning.
        """
        with self._lock:
            _, pause = self._late.pop((place.path, place.version), (0.0, 0.0))
            pause = min(LONGEST_LATE_S, max(LATE_S, 2 * pause))
            self._late[place.path, place.version] = monotonic() + pause, pause
            while len(self._late) > MOST_BAD:
                self._late.popitem(last=False)

    def is_late(self, place: ObjectPlace) -> bool:
        with self._lock:
            until, _ = self._late.get((place.path, place.version), (0.0, 0.0))
            return monotonic() < until

    def take_flaws(self) -> list[Flaw]:
        with self._lock:
            flaws, self._flaws = self._flaws, []
            return flaws

    def where(self, place: ObjectPlace) -> str:
        return f"{place.path} in {self._bucket.url}"

    def check(self, reader: EntryReader, place: ObjectPlace) -> VariantKey:
        """Raises ForeignEntry unless it holds what its name says, in the form that is expected."""
        key = reader.header.key
        if (key.family, key.digest) != (place.family, place.digest):
            raise ForeignEntry(f"{self.where(place)} holds another variant, {key}")
        self._forms.expect(reader.header, self.where(place))
        return key

    def _remember(self, family: str, asked: float, ended: Future[RemoteFamily]) -> None:
        with self._lock:
            if self._looks.get(family) != (asked, ended):
                return  # it is remembered, or forgotten by now
            del self._looks[family]
            if ended.cancelled() or ended.exception() is not None:
                return
            found = ended.result()
            _, old = self._families.pop(family, (0.0, RemoteFamily()))
            self._families[family] = monotonic() + (HELD_S if found.entries else LACKED_S), found
            self._nbytes += found.nbytes - old.nbytes
            while len(self._families) > MOST_FAMILIES or (self._nbytes > MOST_NBYTES and len(self._families) > 1):
                self._nbytes -= self._families.popitem(last=False)[1][1].nbytes

    async def _looked(self, family: str) -> RemoteFamily:
        places = [place for place in await self.places(family) if not self.is_newer(place)]
        looks = await asyncio.gather(*(self._entry(place) for place in places[: self._looked_at]))
        # Of one digest there may be two, of writers that knew more or less of what had a part in it: the newest.
        entries = {one.place.digest: one for one in reversed(looks) if one is not None}
        return RemoteFamily(tuple(entries.values()))

    async def places(self, family: str) -> list[ObjectPlace]:
        """That are not known to be bad, the newest first. One page: whoever fills a folder is not followed."""
        async for page in self._bucket.places(folder_of(family)):
            with self._lock:
                sound = [place for place in page if self._bad.get((place.path, place.version), True)]
            return sorted(sound, key=lambda place: place.written, reverse=True)
        return []

    def is_newer(self, place: ObjectPlace) -> bool:
        """Whether it is known to be a newer version's, which may still want it."""
        with self._lock:
            return self._bad.get((place.path, place.version), False)

    async def _entry(self, place: ObjectPlace) -> RemoteEntry | None:
        try:
            return await self._read_entry(place)
        except (UnreadableObject, MemoryError, OSError):  # the next look asks for it again
            return None
        except RemoteError:
            raise
        except FAULTS as error:  # of a hostile header too: its object is not used, and no other suffers
            self.refuse(place, error)
            return None

    async def _read_entry(self, place: ObjectPlace) -> RemoteEntry | None:
        if place.size > MOST_OBJECT:
            raise CorruptEntry(
                f"{self.where(place)} has {place.size:,} bytes: no cache file has more than {MOST_OBJECT:,}"
            )
        return await from_head(self._bucket, place, self.where(place), lambda fetch: self._entry_of(fetch, place))

    def _entry_of(self, fetch: Fetch, place: ObjectPlace) -> RemoteEntry:
        reader = EntryReader(fetch, place.size, self.where(place))
        key, seen = self.check(reader, place), reader.header.lineage.seen
        return RemoteEntry(place, reader.info(BUCKET, self._level), frozenset((key.chunk, *key.context, *seen)))
