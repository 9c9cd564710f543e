"""Jobs that clients follow: one look tells it of all of them, however many streams there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from app.server.watch import SharedWatch

LOOK_S = 0.5
SeenJob = tuple[StoredJob, Collection]


class JobNews:
    """What becomes of a job, for one who follows it on an event loop."""

    def __init__(self, seen: SeenJob):
        self.job_id = seen[0].id
        self._told: SeenJob | None = seen
        self._loop, self._came = asyncio.get_running_loop(), asyncio.Event()

    async def next(self) -> SeenJob | None:
        """When it is another than was told last; None where it is gone with its collection."""
        await self._came.wait()
        self._came.clear()
        return self._told

    def tell(self, seen: SeenJob | None) -> None:
        """By one thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._hear, seen)

    def _hear(self, seen: SeenJob | None) -> None:
        if seen != self._told:
            self._told = seen
            self._came.set()


class JobWatch(SharedWatch[JobNews]):
    what, wanted = "job", "how far jobs are that clients follow"

    def __init__(self, catalog: Catalog):
        super().__init__()
        self._catalog = catalog

    @property
    def look_s(self) -> float:
        return LOOK_S

    @contextmanager
    def following(self, seen: SeenJob) -> Iterator[JobNews]:
        """What is another than what was `seen`, in the block. Raises RefusedRequest where no thread is to be had."""
        news = JobNews(seen)
        with self._held(news):
            yield news

    def _look(self, watched: Mapping[object, JobNews]) -> None:
        jobs = self._catalog.jobs.these({news.job_id for news in watched.values()})
        there = self._catalog.collections.with_ids({job.collection_id for job in jobs})
        now = {job.id: (job, there[job.collection_id]) for job in jobs if job.collection_id in there}
        for news in watched.values():
            news.tell(now.get(news.job_id))
