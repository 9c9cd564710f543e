"""Deletions in a bucket: of entries and families by the names in their folders, of texts by a walk over all names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import chain

from ragcache.store.remote.bucket import WRITES, Bucket
from ragcache.store.remote.catalog import BucketCatalog
from ragcache.store.remote.journal import Kind, RemoteTask
from ragcache.store.remote.names import ObjectPlace, folder_of
from ragcache.store.remote.shared_uses import SharedUses
from ragcache.store.remote.sweep import Sweep, deletion_of


class Deletions:
    """Its coroutine runs on the bucket's loop, and raises RemoteError."""

    def __init__(self, bucket: Bucket, catalog: BucketCatalog, uses: SharedUses):
        self._bucket, self._catalog, self._uses = bucket, catalog, uses

    async def run(self, tasks: Sequence[RemoteTask]) -> list[RemoteTask]:
        """All of them -> what of it may not be deleted here, each as a deletion of its own."""
        way = self._bucket.deleting_again if _all_hopeless(tasks) else self._bucket.deleting
        way.check()  # before anything is listed in vain
        denied, few = list[RemoteTask](), asyncio.Semaphore(WRITES)  # prompts ask the bucket meanwhile
        beside: dict[str, dict[str, list[RemoteTask]]] = {}  # of one folder, by their families
        for task in tasks:
            if task.kind in (Kind.DELETE, Kind.FAMILY):
                family = _family_of(task)
                beside.setdefault(folder_of(family)[:3], {}).setdefault(family, []).append(task)
        for left in await asyncio.gather(*(self._delete(folder, families, few) for folder, families in beside.items())):
            denied += left
        walked = [task for task in tasks if task.kind in (Kind.CHUNK, Kind.TRACES)]
        if walked:
            sweep = Sweep(walked)
            gone = await sweep.run(self._bucket)
            denied += sweep.denied
            self._uses.forget(place.digest for place in gone)
            for place in gone:
                self._catalog.forget(place.family)
        return denied

    async def _delete(
        self, folder: str, families: Mapping[str, Sequence[RemoteTask]], few: asyncio.Semaphore
    ) -> list[RemoteTask]:
        """By all names of their folder, while these take fewer requests than a look at each family: of a collection
        that is evicted most families have nothing there.
        """
        denied, left = list[RemoteTask](), len(families) if len(families) > 1 else 0
        if left:
            async with few, aclosing(self._bucket.places(folder)) as pages:
                async for page in pages:
                    denied += await self._drop(page, families)
                    left -= 1
                    if not left:
                        break
        if not left:
            found = await asyncio.gather(*(self._delete_family(one, families, few) for one in families))
            denied += chain.from_iterable(found)
        for family in families:
            self._catalog.forget(family)
        return denied

    async def _delete_family(
        self, family: str, families: Mapping[str, Sequence[RemoteTask]], few: asyncio.Semaphore
    ) -> list[RemoteTask]:
        denied = list[RemoteTask]()
        async with few:
            async for page in self._bucket.places(folder_of(family)):
                denied += await self._drop(page, families)
        return denied

    async def _drop(
        self, page: Sequence[ObjectPlace], families: Mapping[str, Sequence[RemoteTask]]
    ) -> list[RemoteTask]:
        meant = dict[ObjectPlace, list[RemoteTask]]()
        for place in page:
            if tasks := [task for task in families.get(place.family, ()) if _is_meant(place, task)]:
                meant[place] = tasks
        again = all(map(_all_hopeless, meant.values()))
        denied = await self._bucket.delete([place.path for place in meant], again=again)
        self._uses.forget(place.digest for place in meant if place.path not in denied)
        last = ((place, max(task.number for task in tasks)) for place, tasks in meant.items())
        return [deletion_of(place, number) for place, number in last if place.path in denied]


def _all_hopeless(tasks: Iterable[RemoteTask]) -> bool:
    return all(task.hopeless for task in tasks)


def _family_of(task: RemoteTask) -> str:
    return task.told[1] if task.kind is Kind.DELETE else task.told[0]


def _is_meant(place: ObjectPlace, task: RemoteTask) -> bool:
    """One entry, or those of its family that do not stay; bad ones too."""
    is_one = task.kind is Kind.DELETE
    return (place.digest in task.told[2 if is_one else 1 :]) is is_one
