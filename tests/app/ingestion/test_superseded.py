"""A file whose turn comes behind that of a newer one of its name leaves the document as it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from app.ingestion.queue import IngestQueue
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from app.library.catalog.serving_tables import JOBS
from app.library.catalog.tables import now
from app.library.removal import remove_documents
from app.models import Models
from tests.app.ingestion.sending import TEXT, Queues, ended, send
from tests.app.loaders.files import write_pdf

OLDER, NEWER = TEXT + b"It has one crane.", TEXT + b"It has two cranes."


@pytest.fixture
def overtaken(queues: Queues, library: Library, collection: Collection) -> tuple[IngestQueue, StoredJob, StoredJob]:
    """An older upload that was cancelled before it began, and a newer one that is done."""
    queue = queues()
    queue.spool.open()  # nothing takes jobs from it
    older = send(queue, collection, "harbour.txt", OLDER)
    queue.cancel(older.id, "")
    queue.start()
    return queue, older, ended(library, send(queue, collection, "harbour.txt", NEWER))


def change(library: Library, job: StoredJob, **values: object) -> None:
    with library.catalog.database.writing() as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(**values))


def cranes(library: Library, collection: Collection) -> list[str]:
    texts = [library.catalog.documents.text(one.id) for one in library.catalog.documents.all(collection)]
    return [text.partition("It has ")[2] for text in texts]


def test_what_is_tried_again_overwrites_nothing_newer(
    overtaken: tuple[IngestQueue, StoredJob, StoredJob], library: Library, collection: Collection
) -> None:
    queue, older, newer = overtaken
    queue.retry(older.id, "")
    job = ended(library, older)
    assert (job.state, job.progress["outcome"]) == ("done", "superseded")
    assert job.progress["document"] == newer.progress["document"]
    assert job.progress["notes"] == ["harbour.txt: a newer upload of this name is in"]
    assert cranes(library, collection) == ["two cranes."]


def test_nor_does_another_key_whose_turn_comes_later(
    queues: Queues, library: Library, collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ingestion.queue.LANES", 1)
    queue = queues()
    queue.spool.open()
    one, two = (write_pdf(tmp_path / f"{n}.pdf", [[f"It has {n} cranes."]]).read_bytes() for n in ("one", "two"))
    send(queue, collection, "first.txt", TEXT, "anna")
    older = send(queue, collection, "harbour.pdf", one, "anna")
    other = send(queue, library.collection_or_new("other"), "harbour.pdf", two, "chris")
    newer = send(queue, collection, "harbour.pdf", two, "ben")
    queue.start()
    outcomes = [ended(library, job).progress["outcome"] for job in (older, newer, other)]
    assert outcomes == ["superseded", "added", "added"]
    assert not queue.originals.path(older.request["sha256"]).exists()
    assert queue.originals.path(newer.request["sha256"]).exists()


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("running", "superseded"),
        ("failed", "superseded"),
        ("put back", "superseded"),
        ("not begun", "replaced"),
        ("cancelled", "replaced"),
    ],
)
def test_what_is_in_counts_before_its_job_has_ended(
    overtaken: tuple[IngestQueue, StoredJob, StoredJob],
    library: Library,
    collection: Collection,
    state: str,
    outcome: str,
) -> None:
    queue, older, newer = overtaken
    elsewhere = {**newer.request, "place": "elsewhere"}  # nobody takes it here
    told = {"state": state, "leased_until": now() + timedelta(hours=1), "lease": "0" * 32}
    if state in ("put back", "not begun"):
        told |= {"state": "queued", "started": newer.started if state == "put back" else None}
    change(library, newer, request=elsewhere, **told)
    queue.retry(older.id, "")
    assert ended(library, older).progress["outcome"] == outcome


def test_where_the_newer_document_was_deleted_nothing_is_overwritten(
    overtaken: tuple[IngestQueue, StoredJob, StoredJob], library: Library, models: Models, collection: Collection
) -> None:
    queue, older, newer = overtaken
    remove_documents(library, models, collection, [newer.progress["document"]])
    queue.retry(older.id, "")
    assert ended(library, older).progress["outcome"] == "added"


def test_jobs_that_do_not_tell_when_they_came_are_as_old_as_they_say(
    overtaken: tuple[IngestQueue, StoredJob, StoredJob], library: Library, collection: Collection
) -> None:
    queue, older, newer = overtaken
    for job in (older, newer):
        change(library, job, request={name: value for name, value in job.request.items() if name != "came"})
    queue.retry(older.id, "")
    assert ended(library, older).progress["outcome"] == "replaced", "it was made anew"
