"""What machines tell each other of how often they ask for entries: each has an object of its own beside them.

uses/1/<machine>: _MAGIC, then a row of 24 bytes for each entry that was used within a month, whether the
bucket has it or not. So an order of eviction knows of the bucket what it knows of a disk, but for what was used within
minutes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ragcache.errors import RemoteError, StoreError
from ragcache.store.eviction import Evictable, Uses
from ragcache.store.remote.bucket import Bucket, BucketObject
from ragcache.store.remote.names import ObjectPlace
from ragcache.store.remote.use_record import KEPT_S, MOST_TOLD, TOLD_S, Used, UseRecord, faded, use_name

FOLDER = "uses/1/"
MOST_MACHINES, MOST_NBYTES = 256, 64 << 20  # that are read, those that told last
_MAGIC = b"RCUSES01"
_ROW = np.dtype([("name", "<u8"), ("count", "<f4"), ("later", "<f4"), ("worth", "<f4"), ("last", "<u4")])
_MOST = 1e9  # of any number: whoever tells more is not believed
_NEAR_S = 60.0  # by which clocks of machines differ
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToldUses:
    """Of all machines together, at one time. Of an entry that none tells of, its writing counts as a use."""

    now: float
    rows: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, _ROW))

    @classmethod
    def of(cls, tellings: Sequence[bytes | memoryview], now: float) -> ToldUses:
        """A telling that is none of ours, or of another version, tells nothing."""
        every = [_decoded(one, now) for one in tellings]
        rows = np.concatenate([np.zeros(0, _ROW), *every])
        names, of_name = np.unique(rows["name"], return_inverse=True)
        merged = np.zeros(
            len(names), [("name", "<u8"), *((name, "<f8") for name in ("count", "later", "worth", "last"))]
        )
        merged["name"] = names
        for sums, numbers in (("count", rows["count"]), ("later", _later(rows, now)), ("worth", rows["worth"])):
            merged[sums] = np.bincount(of_name, numbers, len(names))
        np.maximum.at(merged["last"], of_name, rows["last"])
        return cls(now, merged)

    def evictable(self, place: ObjectPlace) -> Evictable:
        """As an order of eviction sees it."""
        came = place.written.timestamp()
        name = int(use_name(place.digest), 16)
        at = int(np.searchsorted(self.rows["name"], np.uint64(name)))
        count = later = worth = last = 0.0
        if at < len(self.rows) and int(self.rows["name"][at]) == name:
            _, count, later, worth, last = self.rows[at].item()
        uses = Uses(max(1.0, count), 0.0, max(faded(self.now - came), later), max(1.0, worth))
        return Evictable(place.path, place.size, int(1000 * max(came, last)), False, int(1000 * came), uses)


class SharedUses:
    """Threads may share it; its coroutine runs on the bucket's loop."""

    def __init__(self, bucket: Bucket, record: UseRecord, clock: Callable[[], float] = time.time):
        self._bucket, self._record, self._clock = bucket, record, clock
        self._told = ToldUses(0.0)
        self._asked = 0.0  # when all were asked for last

    def tell(self, *, at_once: bool = False) -> None:
        """This machine's, where it is time to; waits for it. Raises nothing: they are told the next time."""
        try:
            if (due := self._record.due(at_once=at_once)) is not None:
                machine, used = due
                self._bucket.submit(self._bucket.write(f"{FOLDER}{machine}", encoded(used))).result()
        except RemoteError:  # its health has told
            pass
        except StoreError as error:
            _log.warning("other machines are not told what is used here: %s", error)

    async def all_told(self, *, anew: bool = False) -> ToldUses:
        """By all machines, within some minutes, or `anew`; what is known, where the bucket does not tell now."""
        now = self._clock()
        if not anew and 0 <= now - self._asked < TOLD_S:
            return self._told
        self._asked = now
        try:
            listed = [one async for page in self._bucket.listed(FOLDER) for one in page]
            listed.sort(key=lambda one: one.written, reverse=True)
            read = await asyncio.gather(*map(self._read, _bounded(listed)))
            self._told = ToldUses.of([data for data in read if data is not None], now)
            await self._bucket.delete([one.path for one in listed if now - one.written.timestamp() > KEPT_S])
        except RemoteError:  # its health has told
            pass
        return ToldUses(now, self._told.rows)

    async def _read(self, one: BucketObject) -> memoryview | None:
        with suppress(RemoteError):  # of one machine: the others have told too
            return await self._bucket.read(one.path, 0, one.size)
        return None


def _bounded(listed: Sequence[BucketObject]) -> list[BucketObject]:
    """The first of those that may be a telling by their size."""
    chosen, nbytes = list[BucketObject](), 0
    for one in listed:
        rows, beside = divmod(one.size - len(_MAGIC), _ROW.itemsize)
        if not beside and 0 < rows <= MOST_TOLD:
            nbytes += one.size
            chosen.append(one)
        if len(chosen) == MOST_MACHINES or nbytes > MOST_NBYTES:
            break
    return chosen


def encoded(used: Sequence[Used]) -> bytes:
    rows = np.zeros(min(len(used), MOST_TOLD), _ROW)
    for row, one in zip(rows, used, strict=False):
        row["name"], row["count"], row["later"] = int(one.name, 16), one.count, one.later
        row["worth"], row["last"] = one.worth, max(0, int(one.last))
    return _MAGIC + rows.tobytes()


def _decoded(data: bytes | memoryview, now: float) -> npt.NDArray[np.void]:
    """Whatever it holds: numbers are within bounds then, and no time is to come."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC or (len(data) - len(_MAGIC)) % _ROW.itemsize:
        return np.zeros(0, _ROW)
    rows = np.frombuffer(data, _ROW, offset=len(_MAGIC)).copy()
    for name in ("count", "later", "worth"):
        rows[name] = np.clip(np.nan_to_num(rows[name]), 0.0, _MOST)
    rows["last"] = np.minimum(rows["last"], np.uint32(now + _NEAR_S))
    return rows


def _later(rows: npt.NDArray[np.void], now: float) -> npt.NDArray[np.float64]:
    """As of now."""
    faded_by: npt.NDArray[np.float64] = np.vectorize(faded, otypes=[np.float64])(now - rows["last"].astype(np.float64))
    return rows["later"].astype(np.float64) * faded_by
