"""Jobs that clients follow are looked at by one thread, once for all who follow any."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from app import Settings
from app.errors import CatalogError
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.serving_records import StoredJob
from app.server.job_watch import JobNews, JobWatch
from tests.app.library.catalog.samples import make_collection

ENDS_S = 60.0
FOLLOWERS = 20
LOOKS = 3


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setattr("app.server.job_watch.LOOK_S", 0.02)
    with open_catalog(Settings(data_dir=tmp_path)) as catalog:
        yield catalog


@pytest.fixture
def watch(catalog: Catalog) -> Iterator[JobWatch]:
    watch = JobWatch(catalog)
    yield watch
    watch.close()


async def told(news: JobNews) -> tuple[str, str] | None:
    """The state of the job, and what its collection is called."""
    seen = await asyncio.wait_for(news.next(), ENDS_S)
    return seen and (seen[0].state, seen[1].name)


def follow(catalog: Catalog, watch: JobWatch, run: Callable[[list[JobNews], list[StoredJob]], object]) -> None:
    """Two jobs of a collection, in turns."""
    shelf = make_collection(catalog, "shelf")
    jobs = [catalog.jobs.create(shelf, {"size": 1}) for _ in range(2)]

    async def followed() -> None:
        with ExitStack() as stack:
            seen = [(jobs[number % 2], shelf) for number in range(FOLLOWERS)]
            news = [stack.enter_context(watch.following(one)) for one in seen]
            await run(news, jobs)  # type: ignore[misc]

    asyncio.run(followed())


def test_who_follows_a_job_is_told_what_becomes_of_it(catalog: Catalog, watch: JobWatch) -> None:
    async def run(news: list[JobNews], jobs: list[StoredJob]) -> None:
        catalog.jobs.cancel(jobs[0].id, None)
        assert [await told(one) for one in news[::2]] == [("cancelled", "shelf")] * (FOLLOWERS // 2)
        shelf = catalog.collections.get("shelf")
        catalog.collections.rename(shelf, "books")
        assert [await told(one) for one in news[:2]] == [("cancelled", "books"), ("queued", "books")]
        catalog.collections.delete(shelf)
        assert [await told(one) for one in news[:2]] == [None, None]

    follow(catalog, watch, run)


def test_as_many_follow_jobs_as_like_and_the_catalog_is_asked_the_same(
    catalog: Catalog, watch: JobWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, asked, looked, these = list[int](), list[str](), threading.Event(), catalog.jobs.these

    def counted(ids: set[str]) -> list[StoredJob]:
        looks.append(len(ids))
        if len(looks) == LOOKS:
            looked.set()  # the first look may come before the second is followed
        return these(ids)

    def count(connection: object, cursor: object, statement: str, *_: object) -> None:
        if threading.current_thread().name == "ragcache-jobs":
            asked.append(statement)

    async def run(news: list[JobNews], jobs: list[StoredJob]) -> None:
        assert await asyncio.to_thread(looked.wait, ENDS_S)
        await asyncio.to_thread(watch.close)

    monkeypatch.setattr(catalog.jobs, "these", counted)
    event.listen(Engine, "before_cursor_execute", count)
    try:
        follow(catalog, watch, run)
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert set(looks[1:]) == {2} and len(asked) == 2 * len(looks)


def test_a_catalog_that_is_away_ends_no_stream(
    catalog: Catalog, watch: JobWatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    these = catalog.jobs.these

    def away(ids: set[str]) -> list[StoredJob]:
        monkeypatch.setattr(catalog.jobs, "these", these)
        raise CatalogError("the catalog is away")

    async def run(news: list[JobNews], jobs: list[StoredJob]) -> None:
        catalog.jobs.cancel(jobs[0].id, None)
        assert await told(news[0]) == ("cancelled", "shelf")

    monkeypatch.setattr(catalog.jobs, "these", away)
    with caplog.at_level(logging.WARNING):
        follow(catalog, watch, run)
    assert "the catalog is away" in caplog.text
