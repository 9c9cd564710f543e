"""What machines tell each other of how often they ask for entries: each has an object of its own beside them.

uses/1/<machine>: _MAGIC, then a row of 24 bytes for each entry that was used within a month, whether the
bucket has it or not. So an order of eviction knows of the bucket what it knows of a disk, but for what was used within
minutes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from time import time
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ragcache.errors import RemoteError, StoreError
from ragcache.store.eviction import Evictable, Uses
from ragcache.store.remote.bucket import WRITES, Bucket, BucketObject
from ragcache.store.remote.names import ObjectPlace
from ragcache.store.remote.use_record import HALF_S, KEPT_S, MOST_TOLD, TOLD_S, Used, UseRecord, faded, use_name

FOLDER = "uses/1/"
MOST_MACHINES, MOST_NBYTES = 256, 64 << 20  # that are read, those that told last
MOST_LISTED = 10_000  # whoever fills the folder is not followed
_MAGIC = b"RCUSES01"
Rows: TypeAlias = npt.NDArray[np.void]
_ROW = np.dtype([("name", "<u8"), ("count", "<f4"), ("later", "<f4"), ("worth", "<f4"), ("last", "<u4")])
_MOST = 1e9  # of any number: whoever tells more is not believed
_NEAR_S = 60.0  # by which clocks of machines differ
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToldUses:
    """Of all machines together, at one time. Of an entry that none tells of, its writing counts as a use."""

    now: float
    rows: Rows = field(default_factory=lambda: np.zeros(0, _ROW))

    @classmethod
    def of(cls, tellings: Sequence[Rows], now: float) -> ToldUses:
        """No use is to come."""
        rows = np.concatenate([np.zeros(0, _ROW), *tellings])
        last = np.minimum(rows["last"], now + _NEAR_S)
        later = rows["later"] * np.exp2(-np.maximum(0.0, now - last) / HALF_S)
        names, of_name = np.unique(rows["name"], return_inverse=True)
        merged = np.zeros(
            len(names), [("name", "<u8"), *((name, "<f8") for name in ("count", "later", "worth", "last"))]
        )
        merged["name"] = names
        for sums, numbers in (("count", rows["count"]), ("later", later), ("worth", rows["worth"])):
            merged[sums] = np.bincount(of_name, numbers, len(names))
        np.maximum.at(merged["last"], of_name, last)
        return cls(now, merged)

    def evictable(self, place: ObjectPlace, *, stays: bool = False) -> Evictable:
        """As an order of eviction sees it, by its path; `stays`: as what is pinned."""
        came = place.written.timestamp()
        name = int(use_name(place.digest), 16)
        at = int(np.searchsorted(self.rows["name"], np.uint64(name)))
        count = later = worth = last = 0.0
        if at < len(self.rows) and int(self.rows["name"][at]) == name:
            _, count, later, worth, last = self.rows[at].item()
        uses = Uses(max(1.0, count), 0.0, max(faded(self.now - came), later), max(1.0, worth))
        return Evictable(place.path, place.size, int(1000 * max(came, last)), stays, int(1000 * came), uses)


class SharedUses:
    """Threads may share it; its coroutine runs on the bucket's loop."""

    def __init__(self, bucket: Bucket, record: UseRecord):
        self._bucket, self._record = bucket, record
        self._own = f"{FOLDER}{record.machine}"
        self._known: dict[str, tuple[str, Rows]] = {}  # of each machine's object: its version, and what it held
        self._told = ToldUses(0.0)
        self._asked = -math.inf  # when all were asked for last
        self._asking, self._few = asyncio.Lock(), asyncio.Semaphore(WRITES)  # prompts ask the bucket meanwhile

    def tell(self, *, at_once: bool = False) -> None:
        """This machine's, where it is time to; waits for it. Raises nothing: they are told the next time."""
        try:
            if (used := self._record.due(at_once=at_once)) is not None:
                self._bucket.submit(self._send(used)).result()
                self._record.told()
        except (StoreError, CancelledError) as error:
            _log.warning("other machines are not told what is used here: %s", str(error) or "the bucket was closed")

    async def _send(self, used: Sequence[Used]) -> None:
        if used:
            await self._bucket.write(self._own, encoded(used), aside=True)
        else:
            await self._bucket.delete([self._own], aside=True)

    def forget(self, digests: Iterable[str]) -> None:
        """These were deleted."""
        self._record.forget(digests)

    async def all_told(self, *, anew: bool = False) -> ToldUses:
        """By all machines, within some minutes; or `anew`, which raises RemoteError where most cannot be read."""
        async with self._asking:
            now = time()
            if not anew and 0 <= now - self._asked < TOLD_S:
                return self._told
            try:
                await self._ask(now)
            except RemoteError:
                if anew:
                    raise
                await self._merge(now)  # for some minutes: its own are here, and what is known of others
            self._asked = now
            return self._told

    async def _ask(self, now: float) -> None:
        newest, wanted = await self._machines()
        reads = await asyncio.gather(*map(self._read, wanted))
        self._known = {one.path: found for one, found in zip(wanted, reads, strict=True) if found is not None}
        if 2 * len(self._known) < len(wanted):
            raise RemoteError(f"what most of {len(wanted)} other machines use cannot be read")
        await self._merge(now)
        gone = [one.path for one in newest if (newest[0].written - one.written).total_seconds() > KEPT_S]
        with suppress(RemoteError):
            await self._bucket.delete(gone, aside=True)

    async def _merge(self, now: float) -> None:
        self._told = await asyncio.to_thread(self._merged, [rows for _, rows in self._known.values()], now)

    def _merged(self, others: Sequence[Rows], now: float) -> ToldUses:
        own = list[Used]()
        with suppress(StoreError):  # its folder is told of elsewhere
            own = self._record.used()
        return ToldUses.of([*others, _rows(own)], now)

    async def _machines(self) -> tuple[list[BucketObject], list[BucketObject]]:
        """Objects of machines, the newest first; and those of others that are read."""
        listed = list[BucketObject]()
        async with aclosing(self._bucket.listed(FOLDER)) as pages:
            async for page in pages:
                listed += page
                if len(listed) >= MOST_LISTED:
                    break
        listed.sort(key=lambda one: one.written, reverse=True)
        return listed, _bounded([one for one in listed if one.path != self._own])

    async def _read(self, one: BucketObject) -> tuple[str, Rows] | None:
        """What is known of it by now, where that is the newest there is or it cannot be read: others can."""
        version, known = one.version or str(one.written), self._known.get(one.path)
        if known is not None and known[0] == version:
            return known
        with suppress(RemoteError):
            async with self._few:
                data = await self._bucket.read(one.path, 0, one.size, aside=True)
            return version, _decoded(data or b"")
        return known


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
    return _MAGIC + _rows(used).tobytes()


def _rows(used: Sequence[Used]) -> Rows:
    told = ((int(one.name, 16), one.count, one.later, one.worth, max(0, int(one.last))) for one in used[:MOST_TOLD])
    return np.fromiter(told, _ROW)


def _decoded(data: bytes | memoryview) -> Rows:
    """Whatever it holds: numbers are within bounds then."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC or (len(data) - len(_MAGIC)) % _ROW.itemsize:
        return np.zeros(0, _ROW)
    rows = np.frombuffer(data, _ROW, offset=len(_MAGIC)).copy()
    for name in ("count", "later", "worth"):
        rows[name] = np.clip(np.nan_to_num(rows[name]), 0.0, _MOST)
    return rows
