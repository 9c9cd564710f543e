"""Walks over all names of the bucket: what texts had a part in goes, or what is first in the order of eviction."""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragcache.address import group_of, is_within
from ragcache.errors import CorruptEntry, ForeignEntry, NewerEntry, UnreadableObject
from ragcache.store.eviction import Evictable, EvictionOrder
from ragcache.store.eviction.victims import first_of
from ragcache.store.frame import UNREADABLE, Fetch, key_of, seen_of, unframed
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.heads import from_head
from ragcache.store.remote.journal import Kind, RemoteTask
from ragcache.store.remote.names import ObjectPlace, Suspicion
from ragcache.store.remote.shared_uses import ToldUses

FEW = 8  # objects that may not be read here, or an eighth of those that may
MOST_VICTIMS = 10_000  # that are chosen in one walk
LOWERED = 0.95  # of the budget, to which a walk goes down: the next one is due that much later
_log = logging.getLogger(__name__)


@dataclass
class RemoteUsage:
    entries: int = 0
    nbytes: int = 0
    complete: bool = True

    def count(self, page: Sequence[ObjectPlace]) -> None:
        self.entries += len(page)
        self.nbytes += sum(place.size for place in page)


class Sweep:
    """For deletions of chunks and of their traces, all in one walk."""

    def __init__(self, tasks: Sequence[RemoteTask]):
        self._chunks = {task.told: task.number for task in tasks if task.kind is Kind.CHUNK}
        # Of each text, the task and what stays.
        self._traces = {task.told[0]: (task.number, task.told[1:]) for task in tasks if task.kind is Kind.TRACES}
        self._last = max((task.number for task in tasks), default=0)
        self.denied = list[RemoteTask]()
        chunks = {chunk for *_, chunk in self._chunks}
        self._suspects = Suspicion(chunks | self._traces.keys())
        # No name tells a border: what is suspected of no other texts may be within one where traces stay.
        self._goes_unread = Suspicion(chunks | {text for text, (_, stay) in self._traces.items() if not stay})

    async def run(self, bucket: Bucket) -> list[ObjectPlace]:
        """What went. What may not go here is `denied` then, each as a deletion of its own."""
        gone: list[ObjectPlace] = []
        self._read, self._unread = 0, list[ObjectPlace]()
        async for page in bucket.places():
            suspects = list(filter(self._suspects, page))
            guilty = await asyncio.gather(*(self._guilty(bucket, place) for place in suspects))
            going = {place: last for place, last in zip(suspects, guilty, strict=True) if last is not None}
            gone += await self._deleted(bucket, going)
        return gone + await self._by_names(bucket)

    async def _by_names(self, bucket: Bucket) -> list[ObjectPlace]:
        """Those that may not be read here, where they are few: a name suspects many that had no part in it, and where
        half of a bucket is others', half of it would go. Raises RemoteError where they are more.
        """
        if len(self._unread) > max(FEW, self._read // FEW):
            raise UnreadableObject(
                f"{len(self._unread)} objects of the bucket {bucket.url} may not be read here, and {self._read} may: "
                "what texts had a part in is deleted when they can be"
            )
        return await self._deleted(bucket, dict.fromkeys(self._unread, self._last))

    async def _deleted(self, bucket: Bucket, going: Mapping[ObjectPlace, int]) -> list[ObjectPlace]:
        denied = await bucket.delete([place.path for place in going])
        self.denied += [deletion_of(place, last) for place, last in going.items() if place.path in denied]
        return [place for place in going if place.path not in denied]

    async def _guilty(self, bucket: Bucket, place: ObjectPlace) -> int | None:
        """Number of the last task that means it, by its header. Where that cannot be read by anybody its name is all
        that tells, and it goes, but where some of what it may be stays; not a newer version's: a name suspects it of
        what it never saw.
        """
        certain = self._goes_unread(place)
        try:
            fields = await from_head(bucket, place, place.path, lambda fetch: _fields(fetch, place))
            self._read += 1
            return None if fields is None else self._named_by(fields)
        except NewerEntry as error:
            _log.warning("not deleted: %s", error)
            return None
        except UnreadableObject as error:
            if certain and not error.archived:
                self._unread.append(place)
            return self._last if certain and error.archived else None
        except (CorruptEntry, ForeignEntry, *UNREADABLE):
            return self._last if certain else None

    def _named_by(self, fields: dict[str, Any]) -> int | None:
        key, (seen, whole) = key_of(fields), seen_of(fields)
        parts = self._traces.keys() & seen if whole else self._traces
        traces = (self._traces[text] for text in parts)
        numbers = [number for number, stay in traces if not is_within(key.border, stay)]
        if key.system:
            wanted = ((one, key.chunk) for one in (key.border, group_of(key.border)))
            numbers += [self._chunks[told] for told in wanted if told in self._chunks]
        return max(numbers, default=None)


def deletion_of(place: ObjectPlace, number: int) -> RemoteTask:
    """Of this entry alone, as `number`ed as the task that meant it."""
    return RemoteTask(Kind.DELETE, ("", place.family, place.digest), number)


def _fields(fetch: Fetch, place: ObjectPlace) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(unframed(fetch, place.size, place.path).text)
    return found


async def usage(bucket: Bucket, seconds: float | None = None) -> RemoteUsage:
    """Of all objects that were listed in time."""
    told = RemoteUsage()
    try:
        async with asyncio.timeout(seconds):
            async for page in bucket.places():
                told.count(page)
    except TimeoutError:
        told.complete = False
    return told


async def lowered(bucket: Bucket, budget: int, order: EvictionOrder, uses: ToldUses) -> int:
    """Delete what goes first, until the rest is within the budget -> how many went. Others for what was denied a while
    ago; where too much is denied now, the next walk goes on.
    """
    told, first = RemoteUsage(), list[Evictable]()
    ways = bucket.deleting, bucket.deleting_again

    def place_in_order(one: Evictable) -> tuple[float, int, str]:
        return order.rank(one), one.used, one.name

    async for page in bucket.places():
        told.count(page)
        first += (uses.evictable(place) for place in page if not any(way.knows(place.path) for way in ways))
        if len(first) > 2 * MOST_VICTIMS:
            first = heapq.nsmallest(MOST_VICTIMS, first, place_in_order)
    if told.nbytes <= budget:
        return 0
    lowest = heapq.nsmallest(MOST_VICTIMS, first, place_in_order)
    gone, need = 0, math.ceil(told.nbytes - LOWERED * budget)
    while not bucket.deleting.left_s and (going := first_of(lowest, need)):  # others for what may not go
        lowest = lowest[len(going) :]
        denied = await bucket.delete([one.name for one in going])
        went = [one.nbytes for one in going if one.name not in denied]
        gone, need = gone + len(went), need - sum(went)
    return gone
