"""What loaders warn of is told to whoever ingests the file."""

from __future__ import annotations

from pathlib import Path

from app.ingestion import LONGEST_NOTE, MOST_FILE_NOTES, FileNotes
from app.ingestion.queue import IngestQueue
from app.library import Library
from app.library.catalog.records import Collection
from tests.app.ingestion.conftest import Run
from tests.app.ingestion.sending import ended, send

UNDECLARED = ("Über den Größen der Häfen stehen Türme. " * 40).encode("cp1252")


def test_a_job_tells_it_by_the_name_of_its_file(queue: IngestQueue, library: Library, collection: Collection) -> None:
    job = ended(library, send(queue, collection, "hafen.txt", UNDECLARED))
    (note,) = job.progress["notes"]
    assert note.startswith("hafen.txt is not UTF-8 and tells no encoding: read as cp1252")


def test_an_ingest_tells_it_by_the_path(ingest: Run, docs: Path) -> None:
    (path := docs / "hafen.txt").write_bytes(UNDECLARED)
    (docs / "plain.txt").write_text("Nothing is left out of this one.")
    for options in ({"dry_run": True}, {}):
        notes = [one for one in ingest(**options).notes if "UTF-8" in one]
        assert len(notes) == 1 and notes[0].startswith(f"{path} is not UTF-8")


def test_of_many_files_the_first_are_told_and_none_at_length() -> None:
    notes = FileNotes()
    for number in range(MOST_FILE_NOTES + 1234):
        notes.add([f"{number}.txt", f"{number}.txt"][: 1 + (number < MOST_FILE_NOTES)])
    assert notes.told == [
        *(f"{number}.txt" for number in range(MOST_FILE_NOTES)),
        "1,234 more notes on files are not shown",
    ]
    long = FileNotes()
    long.add(["x" * 10_000])
    assert len(long.told[0]) == LONGEST_NOTE + 1
