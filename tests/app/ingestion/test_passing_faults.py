"""A fault of the machine fails no job at once, nor all that wait behind it."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import CatalogError, Conflict, DiskShort, IngestError, OtherEmbedder
from app.ingestion.ingest import Ingest
from app.ingestion.queue import IngestQueue
from app.library import Library
from app.library.catalog.jobs import ATTEMPTS
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from ragcache.errors import ModelError, RagcacheError, StoreFull
from retriever import RetrieverError
from tests.app.ingestion.sending import PATIENCE_S, TEXT, Queues, ended, send
from tests.waiting import wait_until


class Faults:
    """Of ingests: so many of them, before they succeed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.error: RagcacheError = StoreFull("the disk is full")
        self.left = 0
        monkeypatch.setattr(Ingest, "run_named", self._wrapped(Ingest.run_named))

    def _wrapped(self, run: Any) -> Any:
        def failing(*args: Any, **options: Any) -> Any:
            if self.left:
                self.left -= 1
                raise self.error
            return run(*args, **options)

        return failing


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def test_a_job_waits_with_what_it_met_and_those_behind_it_are_not_touched(
    faults: Faults, queue: IngestQueue, queues: Queues, library: Library, collection: Collection
) -> None:
    faults.left = 1

    def now(job: StoredJob) -> StoredJob:
        return library.catalog.jobs.get(job.id, None)

    first, second = (send(queue, collection, name, TEXT) for name in ("a.txt", "b.txt"))
    wait_until(lambda: now(first).error is not None, PATIENCE_S)
    assert [(now(one).state, now(one).attempts) for one in (first, second)] == [("queued", 1), ("queued", 0)]
    assert now(first).error == "the disk is full"
    queue.close()
    assert not any(one.is_alive() for one in queue._threads), "a pause holds up no end"
    queues().start()
    assert [(ended(library, one).state, now(one).error) for one in (first, second)] == [("done", None)] * 2
    assert now(first).attempts == 2


def test_a_fault_with_one_collection_holds_up_no_other(
    faults: Faults, queue: IngestQueue, library: Library, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ingestion.queue.PAUSE_S", 1000.0)
    jobs, other = library.catalog.jobs, library.collection_or_new("other")
    faults.left = 1
    first = send(queue, collection, "a.txt", TEXT)
    wait_until(lambda: jobs.get(first.id, None).error is not None, PATIENCE_S)
    assert ended(library, send(queue, other, "b.txt", TEXT)).state == "done"
    assert jobs.get(first.id, None).state == "queued"
    faults.left = 2
    second, third = send(queue, other, "c.txt", TEXT), send(queue, library.collection_or_new("third"), "d.txt", TEXT)
    wait_until(lambda: jobs.get(third.id, None).error is not None, PATIENCE_S)
    last = send(queue, library.collection_or_new("fourth"), "e.txt", TEXT)
    assert [jobs.get(one.id, None).state for one in (second, third, last)] == ["queued"] * 3, "it is the machine's"


def test_a_collection_of_another_embedder_fails_its_jobs_at_once(
    faults: Faults, queue: IngestQueue, library: Library, collection: Collection
) -> None:
    faults.error, faults.left = OtherEmbedder("embedded by another"), 1
    job = ended(library, send(queue, collection, "a.txt", TEXT))
    assert (job.state, job.attempts, job.error) == ("failed", 1, "embedded by another")


@pytest.mark.parametrize(
    "error", [CatalogError("?"), ModelError("?"), StoreFull("?"), RetrieverError("?"), DiskShort("?")]
)
def test_what_may_pass_fails_a_job_when_it_has_not_passed(
    faults: Faults,
    queue: IngestQueue,
    library: Library,
    collection: Collection,
    error: RagcacheError,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wait in ("PAUSE_S", "POLL_S"):
        monkeypatch.setattr(f"app.ingestion.queue.{wait}", 0.01)
    faults.error, faults.left = error, ATTEMPTS
    job = ended(library, send(queue, collection, "a.txt", TEXT))
    assert (job.state, job.error, job.attempts) == ("failed", "?", ATTEMPTS)
    faults.left = ATTEMPTS - 1
    queue.retry(job.id, "")
    assert ended(library, job).state == "done"


@pytest.mark.parametrize("error", [IngestError("?"), Conflict("?")])
def test_what_does_not_pass_fails_it_at_once(
    faults: Faults, queue: IngestQueue, library: Library, collection: Collection, error: RagcacheError
) -> None:
    faults.error, faults.left = error, 1
    job = ended(library, send(queue, collection, "a.txt", TEXT))
    assert (job.state, job.attempts) == ("failed", 1)
    assert ended(library, send(queue, collection, "b.txt", TEXT)).state == "done", "without a pause"
