"""Deletions in a bucket: of entries and families by the names in their folders, of texts by a walk over all names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from ragcache.store.remote.bucket import WRITES, Bucket
from ragcache.store.remote.catalog import BucketCatalog
from ragcache.store.remote.journal import Kind, RemoteTask
from ragcache.store.remote.names import ObjectPlace, folder_of
from ragcache.store.remote.shared_uses import SharedUses
from ragcache.store.remote.sweep import Sweep


class Deletions:
    """Its coroutine runs on the bucket's loop, and raises RemoteError."""

    def __init__(self, bucket: Bucket, catalog: BucketCatalog, uses: SharedUses):
        self._bucket, self._catalog, self._uses = bucket, catalog, uses

    async def run(self, tasks: Sequence[RemoteTask]) -> None:
        few = asyncio.Semaphore(WRITES)  # prompts ask the bucket meanwhile
        beside: dict[str, dict[str, list[RemoteTask]]] = {}  # of one folder, by their families
        for task in tasks:
            if task.kind in (Kind.DELETE, Kind.FAMILY):
                family = _family_of(task)
                beside.setdefault(folder_of(family)[:3], {}).setdefault(family, []).append(task)
        await asyncio.gather(*(self._delete(folder, families, few) for folder, families in beside.items()))
        walked = [task for task in tasks if task.kind in (Kind.CHUNK, Kind.TRACES)]
        if walked:
            gone = await Sweep(walked).run(self._bucket)
            self._uses.forget(place.digest for place in gone)
            for place in gone:
                self._catalog.forget(place.family)

    async def _delete(self, folder: str, families: Mapping[str, Sequence[RemoteTask]], few: asyncio.Semaphore) -> None:
        """By all names of their folder, while these take fewer requests than a look at each family: of a collection
        that is evicted most families have nothing there.
        """
        left = len(families) if len(families) > 1 else 0
        if left:
            async with few, aclosing(self._bucket.places(folder)) as pages:
                async for page in pages:
                    await self._drop(page, families)
                    left -= 1
                    if not left:
                        break
        if not left:
            await asyncio.gather(*(self._delete_family(one, families, few) for one in families))
        for family in families:
            self._catalog.forget(family)

    async def _delete_family(
        self, family: str, families: Mapping[str, Sequence[RemoteTask]], few: asyncio.Semaphore
    ) -> None:
        async with few:
            async for page in self._bucket.places(folder_of(family)):
                await self._drop(page, families)

    async def _drop(self, page: Sequence[ObjectPlace], families: Mapping[str, Sequence[RemoteTask]]) -> None:
        going = [place for place in page if any(_is_meant(place, task) for task in families.get(place.family, ()))]
        if going:
            await self._bucket.delete([place.path for place in going])
            self._uses.forget(place.digest for place in going)


def _family_of(task: RemoteTask) -> str:
    return task.told[1] if task.kind is Kind.DELETE else task.told[0]


def _is_meant(place: ObjectPlace, task: RemoteTask) -> bool:
    """One entry, or those of its family that do not stay; bad ones too."""
    is_one = task.kind is Kind.DELETE
    return (place.digest in task.told[2 if is_one else 1 :]) is is_one
