"""The same letters are the same name, in whatever form of Unicode a system sends them."""

from __future__ import annotations

from pathlib import Path
from unicodedata import normalize

import pytest
from sqlalchemy import update

from app.ingestion import IngestOptions
from app.ingestion.ingest import Ingest
from app.ingestion.queue import IngestQueue
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_tables import JOBS
from app.library.originals import SCHEME
from app.models import Models
from tests.app.ingestion.sending import TEXT, Queues, ended, send

NAME = "Häfen und Café.txt"
DECOMPOSED = normalize("NFD", NAME)


def test_both_forms_of_a_name_are_one_document(queue: IngestQueue, library: Library, collection: Collection) -> None:
    jobs = [ended(library, send(queue, collection, name, TEXT)) for name in (DECOMPOSED, NAME, DECOMPOSED)]
    assert [one.progress["outcome"] for one in jobs] == ["added", "unchanged", "unchanged"]
    assert [one.source for one in library.catalog.documents.all(collection)] == [SCHEME + NAME]
    assert {one.request["name"] for one in jobs} == {NAME}


@pytest.mark.parametrize("name", [NAME, DECOMPOSED])
def test_one_that_was_kept_as_it_came_is_replaced(
    queue: IngestQueue, library: Library, models: Models, collection: Collection, tmp_path: Path, name: str
) -> None:
    (path := tmp_path / "kept.txt").write_bytes(TEXT)
    Ingest(library, models, collection, IngestOptions(workers=1)).run_named({path: SCHEME + DECOMPOSED})
    (kept,) = library.catalog.documents.all(collection)
    job = ended(library, send(queue, collection, name, TEXT + b"It has a crane."))
    assert (job.progress["outcome"], job.progress["document"]) == ("replaced", kept.id)
    assert [one.id for one in library.catalog.documents.all(collection)] == [kept.id]


def test_a_newer_file_is_found_by_either_form(queues: Queues, library: Library, collection: Collection) -> None:
    queue = queues()
    queue.spool.open()
    older = send(queue, collection, NAME, TEXT)
    with library.catalog.database.writing() as connection:  # as an older version has kept it
        connection.execute(update(JOBS).values(request={**older.request, "name": DECOMPOSED}))
    queue.cancel(older.id, "")
    queue.start()
    ended(library, send(queue, collection, NAME, TEXT + b"It has a crane."))
    queue.retry(older.id, "")
    assert ended(library, older).progress["outcome"] == "superseded"
