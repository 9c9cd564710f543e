"""KV that takes several turns: a document comes before all of it where others wait, and the rest comes behind them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import update

from app.ingestion import IngestResult
from app.ingestion.job_run import JobRun
from app.ingestion.queue import IngestQueue
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from app.library.catalog.serving_tables import JOBS
from app.library.kv import with_kv
from app.library.removal import remove_documents
from app.models import Models
from tests.app.ingestion.conftest import files, nbytes
from tests.app.ingestion.sending import TEXT, Queues, ended, send, spooled

LONG = "\n\n".join(f"Entry {entry}. " + "The fog came in again. " * 20 for entry in range(12)).encode()
Between = Callable[[StoredJob], object]


@pytest.fixture
def waiting(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> IngestQueue:
    """Nothing takes jobs from it before it is started, and then one at a time; each turn is over behind one chunk."""
    monkeypatch.setattr("app.ingestion.queue.LANES", 1)
    monkeypatch.setattr("app.ingestion.leased_run.TURN_S", 0.0)
    queue = queues()
    queue.spool.open()
    return queue


@pytest.fixture
def both(waiting: IngestQueue, library: Library, collection: Collection) -> tuple[StoredJob, StoredJob]:
    """A long file of one owner, and behind it a short one of another, for another collection."""
    long = send(waiting, collection, "long.txt", LONG, "anna")
    return long, send(waiting, library.collection_or_new("other"), "short.txt", TEXT, "ben")


def between(monkeypatch: pytest.MonkeyPatch, library: Library, of: StoredJob, act: Between) -> list[StoredJob]:
    """How the job stands when one of another owner begins first, where `act` is done."""
    seen, run = list[StoredJob](), JobRun.run

    def watched(self: JobRun) -> IngestResult | None:
        if self.job.owner != of.owner and not seen:
            seen.append(library.catalog.jobs.get(of.id, None))
            act(seen[-1])
        return run(self)

    monkeypatch.setattr(JobRun, "run", watched)
    return seen


def lacking(library: Library, models: Models, collection: Collection) -> set[str]:
    ids = [one.id for one in library.catalog.documents.all(collection, "ready")]
    hashes = set[str]().union(*library.catalog.chunks.hashes_of(ids).values())
    assert hashes
    return hashes - with_kv(models, hashes, "")


def test_kv_gives_way_to_a_file_of_another_owner_and_goes_on_behind_it(
    waiting: IngestQueue,
    both: tuple[StoredJob, StoredJob],
    library: Library,
    models: Models,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = list[int]()
    seen = between(monkeypatch, library, both[0], lambda job: missing.append(len(lacking(library, models, collection))))
    waiting.start()
    long, short = (ended(library, job) for job in both)
    assert long.finished is not None and short.finished is not None and short.finished < long.finished
    (told,) = seen
    chunks = long.progress["chunks"]
    assert (told.state, told.attempts, told.error, told.progress["chunks"]) == ("queued", 0, None, chunks)
    assert told.progress["document"] == long.progress["document"] and told.progress["outcome"] == "added"
    assert told.progress["stages"]["embedded"] == {"done": chunks, "of": chunks}
    assert told.progress["stages"]["kv"]["done"] < chunks and 0 < missing[0] < chunks
    assert (long.state, long.attempts, long.progress["outcome"], long.progress.get("notes")) == (
        "done",
        1,
        "added",
        None,
    )
    assert long.progress["stages"]["kv"] == {"done": chunks, "of": chunks} and "gave_way" not in long.progress
    assert lacking(library, models, collection) == set() and spooled(waiting) == []
    assert long.progress["kv_variants"] >= chunks > told.progress["kv_variants"] > 0


def test_the_kv_is_that_of_one_turn(
    waiting: IngestQueue,
    both: tuple[StoredJob, StoredJob],
    library: Library,
    models: Models,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting.start()
    long, _ = (ended(library, job) for job in both)
    in_turns = {path.name for path in files(library.settings)}
    remove_documents(library, models, collection, [long.progress["document"]])
    assert {path.name for path in files(library.settings)} < in_turns
    again = ended(library, send(waiting, collection, "long.txt", LONG, "anna"))
    assert {path.name for path in files(library.settings)} == in_turns
    assert again.progress["kv_variants"] == long.progress["kv_variants"]


def test_files_of_one_owner_come_one_after_the_other(
    waiting: IngestQueue, library: Library, collection: Collection
) -> None:
    jobs = [send(waiting, collection, f"{name}.txt", LONG + name.encode(), "anna") for name in ("a", "b")]
    waiting.start()
    first, second = (ended(library, job) for job in jobs)
    assert first.finished is not None and second.started is not None and first.finished <= second.started


def test_two_that_give_way_to_each_other_come_to_their_ends(
    waiting: IngestQueue, library: Library, models: Models, collection: Collection
) -> None:
    jobs = [send(waiting, collection, f"{owner}.txt", LONG + owner.encode(), owner) for owner in ("anna", "ben")]
    waiting.start()
    assert [(one.state, one.attempts, one.progress["outcome"]) for one in (ended(library, job) for job in jobs)] == [
        ("done", 1, "added"),
        ("done", 1, "added"),
    ]
    assert lacking(library, models, collection) == set()


def test_what_a_process_leaves_that_is_killed_behind_the_document_is_computed(
    waiting: IngestQueue,
    both: tuple[StoredJob, StoredJob],
    queues: Queues,
    library: Library,
    models: Models,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it wrote down that another turn is to come."""
    monkeypatch.setattr(JobRun, "_let_go", lambda self: None)
    waiting.start()
    ended(library, both[1])
    left = library.catalog.jobs.get(both[0].id, None)
    assert left.state == "running" and lacking(library, models, collection) != set()
    waiting.close()
    monkeypatch.undo()
    with library.catalog.database.writing() as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == left.id).values(leased_until=left.created))
    queues().start()
    assert ended(library, both[0]).state == "done"
    assert lacking(library, models, collection) == set()


def test_one_that_is_cancelled_between_its_turns_and_tried_again_has_all_kv_in_the_end(
    waiting: IngestQueue,
    both: tuple[StoredJob, StoredJob],
    library: Library,
    models: Models,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = between(monkeypatch, library, both[0], lambda job: waiting.cancel(job.id, "anna"))
    waiting.start()
    ended(library, both[1])
    assert [one.state for one in seen] == ["queued"]
    assert ended(library, both[0]).state == "cancelled" and lacking(library, models, collection) != set()
    assert waiting.retry(both[0].id, "anna").progress == {"gave_way": True}
    assert ended(library, both[0]).state == "done" and lacking(library, models, collection) == set()


def test_what_is_deleted_between_the_turns_stays_away(
    waiting: IngestQueue,
    both: tuple[StoredJob, StoredJob],
    library: Library,
    models: Models,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def delete(job: StoredJob) -> None:
        remove_documents(library, models, collection, [job.progress["document"]])

    between(monkeypatch, library, both[0], delete)
    waiting.start()
    long = ended(library, both[0])
    assert (long.state, long.progress["outcome"], long.progress["document"]) == ("done", "superseded", None)
    assert long.progress["notes"] == ["long.txt: its document was deleted meanwhile"]
    assert library.catalog.documents.all(collection) == []


def test_a_newer_file_of_its_name_that_comes_between_the_turns_stays(
    waiting: IngestQueue, library: Library, models: Models, collection: Collection
) -> None:
    older = send(waiting, collection, "long.txt", LONG, "anna")
    newer = send(waiting, collection, "long.txt", TEXT, "ben")
    waiting.start()
    outcomes = [ended(library, job).progress["outcome"] for job in (older, newer)]
    assert outcomes == ["superseded", "replaced"]
    (document,) = library.catalog.documents.all(collection)
    assert library.catalog.documents.text(document.id).startswith("Of the harbour")
    assert lacking(library, models, collection) == set()


def test_what_has_no_room_any_more_is_told(
    waiting: IngestQueue,
    both: tuple[StoredJob, StoredJob],
    library: Library,
    models: Models,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fill(job: StoredJob) -> None:
        models.store.resize("disk", nbytes(library.settings))

    between(monkeypatch, library, both[0], fill)
    waiting.start()
    long = ended(library, both[0])
    (note,) = long.progress["notes"]
    assert long.state == "done" and "1 document has KV on use" in note and "raise RAGCACHE_DISK_BYTES" in note
    assert lacking(library, models, collection) != set()
