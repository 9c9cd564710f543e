"""Jobs that wait for others, and what holds up none: a busy collection, a fault, a folder that cannot be swept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from sqlalchemy import update

from app.cachecare import warming
from app.errors import Conflict, IngestStopped, MaintenanceError
from app.ingestion import IngestOptions
from app.ingestion.ingest import Ingest
from app.ingestion.job_run import JobRun
from app.ingestion.queue import IngestQueue, QueueFull
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_tables import JOBS
from app.library.removal import remove_documents
from app.models import Models
from tests.app.ingestion.conftest import Run
from tests.app.ingestion.sending import PATIENCE_S, TEXT, Queues, ended, held, send
from tests.waiting import wait_until


def test_a_job_waits_for_others_that_work_on_its_collection_and_can_be_cancelled_meanwhile(
    queue: IngestQueue, library: Library, collection: Collection
) -> None:
    with held(library, collection):
        job = send(queue, collection, "harbour.txt", TEXT)
        wait_until(lambda: library.catalog.jobs.get(job.id, None).state == "running", PATIENCE_S)
        with pytest.raises(Conflict):
            queue.retry(job.id, "")
        assert queue.cancel(job.id, "").cancelling
        assert ended(library, job).state == "cancelled"
    assert library.catalog.documents.all(collection) == []
    queue.retry(job.id, "")
    assert ended(library, job).state == "done"


def test_a_fault_beside_a_job_leaves_it_its_lease(
    queue: IngestQueue, library: Library, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks after it goes on: the job can still be cancelled."""
    faults = list[str]()

    def counts(self: JobRun) -> dict[str, int]:
        if len(faults) < 2:
            faults.append(self.job.id)
            raise RuntimeError("a bug")
        return {}

    monkeypatch.setattr(JobRun, "_counts", counts)
    with held(library, collection):
        job = send(queue, collection, "harbour.txt", TEXT)
        wait_until(lambda: len(faults) == 2, PATIENCE_S)
        assert queue.cancel(job.id, "").cancelling
        assert ended(library, job).state == "cancelled"


def test_a_collection_that_others_work_on_holds_up_no_other(
    queue: IngestQueue, library: Library, collection: Collection
) -> None:
    other = library.collection_or_new("other")
    with held(library, collection):
        first = send(queue, collection, "harbour.txt", TEXT)
        wait_until(lambda: library.catalog.jobs.get(first.id, None).state == "running", PATIENCE_S)
        assert ended(library, send(queue, other, "harbour.txt", TEXT)).state == "done"
        assert library.catalog.jobs.get(first.id, None).state in ("queued", "running")
    assert (ended(library, first).state, library.catalog.jobs.get(first.id, None).attempts) == ("done", 1)


def test_a_warming_gives_way_to_files_that_wait(
    queue: IngestQueue, library: Library, ingest: Run, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same key, and for the same collection; then it goes on."""
    monkeypatch.setattr("app.ingestion.leased_run.TURN_S", 0.0)
    ingest(books)
    collection, jobs = library.collection_or_new("default"), library.catalog.jobs
    with held(library, collection):
        job = queue.warm(collection, "", "")
        wait_until(lambda: jobs.get(job.id, None).state == "running", PATIENCE_S)
        sent = send(queue, collection, "harbour.txt", TEXT)
    file, warmed = ended(library, sent), ended(library, job)
    assert (file.state, warmed.state, warmed.attempts) == ("done", "done", 1)
    assert file.finished is not None and warmed.finished is not None and file.finished < warmed.finished
    assert warmed.progress["documents"] == len(library.catalog.documents.all(collection))


def test_warmings_that_give_way_to_each_other_come_to_their_ends(
    queue: IngestQueue, library: Library, ingest: Run, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn goes on behind the one before; what they did is summed."""
    monkeypatch.setattr("app.ingestion.leased_run.TURN_S", 0.0)
    whole, turns = warming.warm, list[list[warming.WarmingProgress]]()

    def warm(*given: Any) -> Iterator[warming.WarmingProgress]:
        turns.append([])
        for reached in whole(*given):
            turns[-1].append(reached)
            yield reached

    monkeypatch.setattr(warming, "warm", warm)
    ingest(books)
    first, second = library.collection_or_new("default"), library.collection_or_new("other")
    Ingest(library, queue._models, second, IngestOptions(kv="on-use", workers=1)).run([docs_of_its_own(books.parent)])
    with held(library, first):
        jobs = [queue.warm(one, "", "") for one in (first, second)]
    told = [ended(library, job) for job in jobs]
    assert [(job.state, job.progress["documents"]) for job in told] == [("done", 3), ("done", 3)]
    assert len(turns) > 2, "they took turns"
    last = [reached.last for turn in turns for reached in turn]
    assert len(last) == len(set(last)) == 6, "none is gone over again"
    computed = sum(turn[-1].computed for turn in turns if turn)
    assert sum(job.progress["kv_variants"] for job in told) == computed > 0


def test_a_warming_whose_last_document_goes_between_two_turns_counts_anew(
    queue: IngestQueue, library: Library, models: Models, ingest: Run, books: Path
) -> None:
    ingest(books)
    collection = library.collection_or_new("default")
    job = ended(library, queue.warm(collection, "", ""))
    remove_documents(library, models, collection, [job.progress["last"]])
    with library.catalog.database.writing() as connection:
        put_back = {"state": "queued", "finished": None}
        connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(**put_back))
    queue._notify()
    again = ended(library, job)
    assert (again.state, again.progress["documents"], job.progress["documents"]) == ("done", 2, 3)


def test_a_warming_that_is_cancelled_has_not_failed_whatever_it_ends_by(
    queue: IngestQueue, library: Library, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warm(*given: Any) -> Iterator[warming.WarmingProgress]:
        check = given[-1]
        yield warming.WarmingProgress()
        with pytest.raises(IngestStopped):
            while True:
                check()
                sleep(0.01)
        raise MaintenanceError("the KV cache is full")

    monkeypatch.setattr(warming, "warm", warm)
    job = queue.warm(collection, "", "")
    wait_until(lambda: library.catalog.jobs.get(job.id, None).state == "running", PATIENCE_S)
    queue.cancel(job.id, "")
    assert ended(library, job).state == "cancelled"


def docs_of_its_own(parent: Path) -> Path:
    (folder := parent / "others").mkdir()
    for name in ("mill", "inn", "ferry"):
        (folder / f"{name}.txt").write_text("\n\n".join(f"The {name} was built in {year}." for year in (1841, 1902)))
    return folder


def test_a_file_goes_into_its_collection_whatever_that_is_called_by_then(
    library: Library, models: Models, collection: Collection, tmp_path: Path
) -> None:
    (path := tmp_path / "harbour.txt").write_bytes(TEXT)
    ingest = Ingest(library, models, collection, IngestOptions(workers=1))
    library.catalog.collections.rename(collection, "old")
    other = library.collection_or_new("shelf")
    assert ingest.run_named({path: "sent:harbour.txt"}).added == 1
    assert [len(library.catalog.documents.all(one)) for one in (collection, other)] == [1, 0]


def test_who_tries_many_again_is_bound_as_who_sends_them(
    queues: Queues, library: Library, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ingestion.queue.MOST_OF_ONE", 2)
    queue = queues()
    queue.spool.open()
    jobs = []
    for number in range(3):
        jobs.append(send(queue, collection, f"{number}.txt", TEXT, "anna"))
        queue.cancel(jobs[-1].id, "anna")
    for job in jobs[:2]:
        queue.retry(job.id, "anna")
    with pytest.raises(QueueFull, match="2 jobs of this key wait"):
        queue.retry(jobs[2].id, "anna")
    queue.spool.close()


def test_what_cannot_be_swept_holds_up_no_job(queue: IngestQueue, library: Library, collection: Collection) -> None:
    (queue.spool.folder / "b" / "lock").mkdir(parents=True)
    queue._house.sweep()
    assert ended(library, send(queue, collection, "harbour.txt", TEXT)).state == "done"


def test_a_queue_that_is_closed_leaves_its_job_to_the_next(
    queues: Queues, library: Library, collection: Collection
) -> None:
    first = queues()
    first.start()
    with held(library, collection):
        job = send(first, collection, "harbour.txt", TEXT)
        wait_until(lambda: library.catalog.jobs.get(job.id, None).state == "running", PATIENCE_S)
        first.close()
    left = library.catalog.jobs.get(job.id, None)
    assert (left.state, left.attempts, left.lease) == ("queued", 0, None)
    queues().start()
    assert ended(library, job).state == "done"


def test_two_queues_over_one_catalog_run_each_job_once(
    queues: Queues, library: Library, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, run = list[tuple[str, str]](), JobRun.run

    def counted(self: JobRun) -> object:
        ran.append((threading.current_thread().name, self.job.id))
        return run(self)

    monkeypatch.setattr(JobRun, "run", counted)
    both = queues(), queues()
    for one in both:
        one.start()
    jobs = [send(both[number % 2], collection, f"{number}.txt", TEXT + str(number).encode()) for number in range(8)]
    assert [ended(library, job).state for job in jobs] == ["done"] * 8
    assert sorted(job_id for _, job_id in ran) == sorted(job.id for job in jobs)
    assert len(library.catalog.documents.all(collection, "ready")) == 8


def test_another_machine_that_warms_the_collection_does_so_for_itself(
    queues: Queues, library: Library, collection: Collection
) -> None:
    queue = queues()
    queue.spool.open()
    library.catalog.jobs.create(collection, {"border": "", "place": "b" * 32}, "", "warm")
    assert queue.warm(collection, "", "").state == "queued"
    with pytest.raises(Conflict, match="is being computed"):
        queue.warm(collection, "", "")
