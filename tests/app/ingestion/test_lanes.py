"""Jobs of different owners are done beside each other: one's file is read for long, and holds up nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from app.errors import IngestStopped
from app.ingestion.job_run import JobRun
from app.ingestion.lanes import LANES, Lanes
from app.ingestion.queue import IngestQueue
from app.ingestion.readers import ReadBefore, Readers
from app.ingestion.survey import Pending
from app.ingestion.worker import ReadFile, Same, memory_for
from app.library import Library
from app.library.catalog.records import Collection, FileState
from app.library.catalog.serving_records import StoredJob
from app.library.catalog.serving_tables import JOBS
from app.loaders.base import ParseLimits
from tests.app.ingestion.sending import PATIENCE_S, TEXT, Queues, ended, send
from tests.app.loaders.files import write_pdf
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound file, which a reader takes half a minute for."""
    pages = [[f"Line {line} of page {page}: the fog came in again." for line in range(50)] for page in range(2500)]
    return write_pdf(tmp_path_factory.mktemp("slow") / "slow.pdf", pages).read_bytes()


@pytest.fixture
def reading(queue: IngestQueue, library: Library, collection: Collection, slow: bytes) -> Iterator[StoredJob]:
    """A job whose file is being read as long as nobody cancels it."""
    job = send(queue, collection, "slow.pdf", slow, "anna")
    wait_until(lambda: any(isinstance(run, JobRun) and run._ends for run in queue._runs), PATIENCE_S)
    yield job
    queue.cancel(job.id, "anna")
    assert ended(library, job).state == "cancelled"


def now(library: Library, job: StoredJob) -> StoredJob:
    return library.catalog.jobs.get(job.id, None)


def test_a_file_that_is_read_for_long_holds_up_no_other_owner(
    reading: StoredJob, queue: IngestQueue, library: Library, collection: Collection
) -> None:
    """Into the same collection too, one after the other."""
    for name in ("a.txt", "b.txt"):
        assert ended(library, send(queue, collection, name, TEXT + name.encode(), "ben")).state == "done"
    assert ended(library, send(queue, library.collection_or_new("other"), "c.txt", TEXT, "chris")).state == "done"
    assert (now(library, reading).state, now(library, reading).progress) == ("running", {})
    assert len(library.catalog.documents.all(collection)) == 2


def test_those_of_its_owner_wait_for_it(
    reading: StoredJob, queue: IngestQueue, library: Library, collection: Collection
) -> None:
    own = send(queue, library.collection_or_new("other"), "a.txt", TEXT, "anna")
    assert ended(library, send(queue, collection, "b.txt", TEXT, "ben")).state == "done"
    assert now(library, own).state == "queued"
    queue.cancel(reading.id, "anna")
    assert ended(library, own).state == "done"


def test_nothing_begins_beside_what_was_tried_before(
    queues: Queues, library: Library, collection: Collection, slow: bytes
) -> None:
    """It may end the process again, and who worked beside it would have failed with it."""
    queue = queues()
    queue.spool.open()
    risky = send(queue, collection, "slow.pdf", slow, "anna")
    with library.catalog.database.writing() as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == risky.id).values(attempts=1))
    other = send(queue, collection, "a.txt", TEXT, "ben")
    queue.start()
    wait_until(lambda: any(isinstance(run, JobRun) and run._ends for run in queue._runs), PATIENCE_S)
    with queue._claims:
        assert [run.job.id for run in queue._runs] == [risky.id] and queue._claimed() is None
    assert (now(library, other).state, now(library, other).attempts) == ("queued", 0)
    queue.cancel(risky.id, "anna")
    assert ended(library, other).state == "done"


@pytest.mark.parametrize("other", ["shelf", "other"])
def test_kv_gives_way_to_a_file_that_comes_meanwhile(
    queue: IngestQueue, library: Library, collection: Collection, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into its collection or another, and goes on behind it."""
    for seconds in ("TURN_S", "LOOK_S"):
        monkeypatch.setattr(f"app.ingestion.leased_run.{seconds}", 0.05)
    text = "\n\n".join(f"Entry {entry}. " + "The fog came in again. " * 20 for entry in range(200))
    long = send(queue, collection, "long.txt", text.encode(), "anna")
    wait_until(lambda: "kv" in now(library, long).progress.get("stages", ()), PATIENCE_S)
    short = ended(library, send(queue, library.collection_or_new(other), "short.txt", TEXT, "ben"))
    between, done = now(library, long), ended(library, long)
    assert (short.state, short.attempts, between.state != "done", between.progress["gave_way"]) == (
        "done",
        1,
        True,
        True,
    )
    assert between.progress["document"] == done.progress["document"] and between.progress["outcome"] == "added"
    assert (done.state, done.attempts, done.progress["outcome"]) == ("done", 1, "added")
    assert done.progress["stages"]["kv"] == dict.fromkeys(("done", "of"), done.progress["chunks"])


def test_the_same_file_of_two_owners_is_one_document(queues: Queues, library: Library, collection: Collection) -> None:
    queue = queues()
    queue.spool.open()
    jobs = [send(queue, collection, "a.txt", TEXT, owner) for owner in ("anna", "ben")]
    queue.start()
    assert {ended(library, job).state for job in jobs} == {"done"}
    outcomes = sorted(ended(library, job).progress["outcome"] for job in jobs)
    assert outcomes[0] == "added" and outcomes[1] in ("superseded", "unchanged")
    assert len(library.catalog.documents.all(collection)) == 1


def test_what_was_read_before_counts_as_the_catalog_is_now(tmp_path: Path) -> None:
    (path := tmp_path / "a.txt").write_bytes(TEXT)
    new = Pending("upload:/a.txt", len(TEXT), None, str(path))
    with Readers(1) as readers:
        ((_, read),) = readers.read([new])
    assert isinstance(read, ReadFile)
    state = FileState(1, read.stamp.content_hash, len(TEXT), 0, "ready", 0, None)
    there = Pending(new.source, new.size, state, new.path)
    failed = Pending(new.source, new.size, FileState(1, state.content_hash, 1, 0, "failed", 1, "?"), new.path)
    same = Same(read.stamp)
    for outcome, file, expected in ((read, new, read), (read, there, same), (same, there, same), (read, failed, read)):
        with ReadBefore(outcome, 1) as readers:
            assert list(readers.read([file], retry=True)) == [(file, expected)]
            assert readers._all == [], "no process"
    for gone in (new, failed):
        with ReadBefore(same, 1) as readers:
            ((_, again),) = readers.read([gone], retry=True)
        assert isinstance(again, ReadFile) and again.parsed.text == read.parsed.text


def test_readers_of_all_lanes_have_the_memory_of_one_together(tmp_path: Path) -> None:
    (path := tmp_path / "a.txt").write_bytes(TEXT)
    limits = ParseLimits(max_memory=1 << 50)
    with Readers(1, limits, share=LANES) as readers:
        list(readers.read([Pending(str(path), len(TEXT), None)]))
        (process,) = readers._all
    assert process.memory == memory_for(1 << 50, LANES) == memory_for(1 << 50, 1) // LANES


def test_one_computes_and_who_waits_can_be_stopped() -> None:
    lanes, stopping, came = Lanes(), threading.Event(), list[str]()

    def compute(name: str, stopped: threading.Event) -> None:
        try:
            with lanes.computing(stopped.is_set):
                came.append(name)
        except IngestStopped:
            came.append(f"{name} was stopped")

    with lanes.computing(lambda: False):
        assert not lanes.is_wanted
        waits = threading.Thread(target=compute, args=("first", stopping))
        waits.start()
        wait_until(lambda: lanes.is_wanted, PATIENCE_S)
        stopping.set()
        waits.join()
        assert came == ["first was stopped"] and not lanes.is_wanted
        waits = threading.Thread(target=compute, args=("second", threading.Event()))
        waits.start()
        wait_until(lambda: lanes.is_wanted, PATIENCE_S)
        assert len(came) == 1
    waits.join()
    assert came[1:] == ["second"]
