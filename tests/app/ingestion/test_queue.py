"""The queue of what clients send: each file once, whoever has the queue, and whatever ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import chain, repeat
from pathlib import Path

import pytest
from sqlalchemy import update

from app.errors import Conflict, IngestError, LoadError
from app.ingestion.queue import IngestQueue, QueueFull
from app.ingestion.spool import UploadTooLong
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_tables import JOBS
from app.library.catalog.tables import now
from app.library.removal import remove_collection, remove_documents
from app.loaders.base import ParseLimits
from app.models import Models
from ragcache.errors import StoreFull
from tests.app.ingestion.sending import PATIENCE_S, TEXT, Queues, ended, held, send, spooled
from tests.app.loaders.files import write_pdf
from tests.waiting import wait_until

ZEROS = "0" * 32
# What another machine's job asks for.
ELSEWHERE = {"name": "a.txt", "file": f"{ZEROS}/{ZEROS}.txt", "sha256": 2 * ZEROS, "size": 1, "place": "b" * 32}


def test_what_is_sent_becomes_a_document(queue: IngestQueue, library: Library, collection: Collection) -> None:
    job = ended(library, send(queue, collection, "harbour.txt", TEXT))
    assert (job.state, job.error, job.progress["outcome"]) == ("done", None, "added")
    assert job.progress["files"] == 1 and job.progress["chunks"] > 0 and job.progress["kv_variants"] > 0
    document = library.catalog.documents.get(job.progress["document"])
    assert (document.source, document.title, document.state) == ("upload:/harbour.txt", "harbour", "ready")
    wait_until(lambda: spooled(queue) == [], PATIENCE_S)


def test_the_same_again_is_left_alone_and_another_version_takes_its_place(
    queue: IngestQueue, library: Library, collection: Collection
) -> None:
    first = ended(library, send(queue, collection, "harbour.txt", TEXT))
    again = ended(library, send(queue, collection, "harbour.txt", TEXT))
    newer = ended(library, send(queue, collection, "harbour.txt", TEXT + b"It has a crane."))
    assert [one.progress["outcome"] for one in (first, again, newer)] == ["added", "unchanged", "replaced"]
    assert len({one.progress["document"] for one in (first, again, newer)}) == 1
    assert "crane" in library.catalog.documents.layout(first.progress["document"]).text


def test_what_cannot_be_read_is_told_as_its_loader_does_and_is_to_be_sent_again(
    queue: IngestQueue, library: Library, collection: Collection
) -> None:
    job = ended(library, send(queue, collection, "report.pdf", b"no PDF at all"))
    assert job.state == "failed" and job.error is not None
    assert job.error.startswith("report.pdf ") and "PDF" in job.error
    assert str(queue.spool.folder) not in job.error
    failed = library.catalog.documents.find(collection, "upload:/report.pdf")
    assert failed is not None and failed.state == "failed" and failed.error in job.error
    wait_until(lambda: spooled(queue) == [], PATIENCE_S)
    with pytest.raises(Conflict, match="would fail alike, and its file is not kept: mend it and send it again"):
        queue.retry(job.id, "")
    assert "older version" not in job.error, "there is none"


def test_what_cannot_be_read_takes_no_document_away(
    queue: IngestQueue, library: Library, collection: Collection, tmp_path: Path
) -> None:
    data = write_pdf(tmp_path / "a.pdf", [["The harbour has a crane."]]).read_bytes()
    done = ended(library, send(queue, collection, "report.pdf", data))
    for bad in (b"no PDF at all", b""):
        job = ended(library, send(queue, collection, "report.pdf", bad))
        assert (job.state, str(job.error).endswith("; its older version stays")) == ("failed", True)
        (document,) = library.catalog.documents.all(collection)
        assert (document.id, document.state, document.error) == (done.progress["document"], "ready", None)
        assert "crane" in library.catalog.documents.text(document.id)
        assert queue.originals.path(done.request["sha256"]).read_bytes() == data


def test_a_file_of_another_folder_is_left_to_whoever_has_it(
    queue: IngestQueue, library: Library, collection: Collection
) -> None:
    foreign = library.catalog.jobs.create(collection, ELSEWHERE)
    assert ended(library, send(queue, collection, "harbour.txt", TEXT)).state == "done"
    assert library.catalog.jobs.get(foreign.id, None).state == "queued"
    queue.sweep()
    assert library.catalog.jobs.get(foreign.id, None).state == "queued"
    with library.catalog.database.writing() as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == foreign.id).values(created=now() - timedelta(days=8)))
    queue.sweep()
    lost = library.catalog.jobs.get(foreign.id, None)
    assert lost.state == "failed" and "send it again" in str(lost.error), "its machine does not come back"


def test_files_that_no_job_knows_go(queues: Queues, library: Library, collection: Collection) -> None:
    first = queues()
    first.spool.open()
    with first.incoming("harbour.txt") as file:
        file.write(TEXT)
        job = first.add(collection, "harbour.txt", file, "")
    with first.incoming("left.txt") as left:
        left.write(TEXT)
        left.finish()
        first.spool.known(left)  # and killed before the job was made
    first.sweep()
    assert [path.name for path in spooled(first)] == [Path(job.request["file"]).name]
    first.spool.close()
    second = queues()
    second.start()
    assert ended(library, job).state == "done"
    second.sweep()
    assert not (first.spool.folder / first.spool.process).exists()


def test_index_files_forget_when_it_sweeps(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    """And soon after a start."""
    forgot, again = threading.Event(), threading.Event()
    moments = chain([forgot], repeat(again))
    monkeypatch.setattr("app.ingestion.queue.forget_all", lambda library, stopped: next(moments).set())
    monkeypatch.setattr("app.ingestion.housekeeping.ROUND_S", 0.05)
    queues().start()
    assert forgot.wait(30) and again.wait(30)


def test_no_end_of_a_queue_waits_for_what_is_to_be_forgotten(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    began, stops = threading.Event(), list[bool]()

    def forget(library: Library, stopped: Callable[[], bool]) -> None:
        stops.append(stopped())
        began.set()
        wait_until(stopped, PATIENCE_S)
        stops.append(stopped())

    monkeypatch.setattr("app.ingestion.queue.forget_all", forget)
    queue = queues()
    queue.start()
    assert began.wait(30)
    queue.close()
    assert stops == [False, True]


def test_no_key_takes_the_room_of_all(
    queues: Queues, library: Library, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ingestion.queue.MOST_WAITING", 3)
    monkeypatch.setattr("app.ingestion.queue.MOST_OF_ONE", 2)
    first = queues()
    first.spool.open()  # nothing takes jobs from it
    for owner in ("a", "a", "b"):
        with first.incoming(f"{owner}.txt", owner) as file:
            first.add(collection, f"{owner}.txt", file, owner)
        if owner == "a" and library.catalog.jobs.counts("a")["queued"] == 2:
            with pytest.raises(QueueFull, match="of this key"), first.incoming("a.txt", "a"):
                pass
    with pytest.raises(QueueFull, match="3 jobs wait"), first.incoming("c.txt", "c"):
        pass


def test_what_waits_elsewhere_takes_no_room_here(
    queues: Queues, library: Library, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody here can work it off."""
    for name in ("MOST_WAITING", "MOST_OF_ONE"):
        monkeypatch.setattr(f"app.ingestion.queue.{name}", 1)
    library.catalog.jobs.create(collection, ELSEWHERE, "a")
    first = queues()
    first.spool.open()
    with first.incoming("a.txt", "a") as file:
        first.add(collection, "a.txt", file, "a")
    with pytest.raises(QueueFull, match="1 jobs wait"), first.incoming("b.txt", "b"):
        pass


def test_a_retry_takes_the_room_of_its_own_place(
    queues: Queues, library: Library, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through whatever machine it is asked for."""
    monkeypatch.setattr("app.ingestion.queue.MOST_OF_ONE", 1)
    jobs = library.catalog.jobs
    again = jobs.create(collection, ELSEWHERE, "a")
    jobs.cancel(again.id, "a")
    here = queues()
    here.spool.open()
    with here.incoming("a.txt", "a") as file:
        here.add(collection, "a.txt", file, "a")
    assert here.retry(again.id, "a").state == "queued", "nothing waits there"
    jobs.cancel(again.id, "a")
    jobs.create(collection, ELSEWHERE, "a")
    with pytest.raises(QueueFull, match="of this key"):
        here.retry(again.id, "a")


def test_what_does_not_arrive_is_not_kept(queue: IngestQueue, library: Library, collection: Collection) -> None:
    with pytest.raises(RuntimeError), queue.incoming("harbour.txt") as file:
        file.write(TEXT)
        raise RuntimeError("the client has gone")
    object.__setattr__(library.settings, "serve_upload_bytes", 1 << 62)
    with pytest.raises(UploadTooLong, match="209,715,200 bytes"), queue.incoming("harbour.txt") as file:
        file.expect(ParseLimits().max_bytes + 1)
    object.__setattr__(library.settings, "serve_upload_bytes", 100)
    with pytest.raises(UploadTooLong), queue.incoming("harbour.txt") as file:
        file.write(TEXT)
    with pytest.raises(StoreFull), queue.incoming("harbour.txt") as file:
        file._most = 1 << 62
        file.expect(1 << 61)
    assert spooled(queue) == [] and library.catalog.jobs.all(owner=None) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b.txt", "/etc/passwd", "a\\b.txt", "a\0.txt", "a\n.txt", " a.txt"])
def test_a_path_is_no_name(queue: IngestQueue, name: str) -> None:
    with pytest.raises(IngestError), queue.incoming(name):
        pass


@pytest.mark.parametrize("name", ["Screenshot 3.04.05\u202fPM.txt", "می\u200cخواهم.txt"])
def test_a_name_is_written_as_its_machine_writes_it(
    queue: IngestQueue, library: Library, collection: Collection, name: str
) -> None:
    """macOS with a narrow blank, and whoever writes Persian with joiners."""
    assert ended(library, send(queue, collection, name, TEXT)).state == "done"
    (document,) = library.catalog.documents.all(collection)
    assert document.source.endswith(name)


@pytest.mark.parametrize("name", ["a" * 252 + ".txt", "ä" * 130 + ".txt", "\udc80.txt"])
def test_a_name_is_as_long_as_that_of_a_file_and_all_text(queue: IngestQueue, name: str) -> None:
    with pytest.raises(IngestError), queue.incoming(name):
        pass


@pytest.mark.parametrize(
    "name", ["CON.txt", "nul.txt", "upload:x.txt", "%2e%2e.txt", "~root.txt", "-rf.txt", "a" * 251 + ".txt"]
)
def test_any_other_name_is_data(queue: IngestQueue, library: Library, collection: Collection, name: str) -> None:
    assert ended(library, send(queue, collection, name, TEXT)).state == "done"
    assert [one.source for one in library.catalog.documents.all(collection)] == [f"upload:/{name}"]


def test_what_a_process_leaves_that_is_killed_behind_the_end_of_a_job_goes(
    queues: Queues, library: Library, collection: Collection, tmp_path: Path
) -> None:
    queue = queues()
    queue.start()
    data = write_pdf(tmp_path / "a.pdf", [["The harbour has a crane."]]).read_bytes()
    done = ended(library, send(queue, collection, "a.pdf", data))
    failed = ended(library, send(queue, collection, "b.pdf", b"no PDF at all"))
    with held(library, collection):
        cancelled = send(queue, collection, "c.pdf", data)
        queue.cancel(cancelled.id, "")
        ended(library, cancelled)
    queue.close()
    original = queue.originals.path(done.request["sha256"])
    for job in (done, failed):
        queue.spool.path(job.request["file"]).write_bytes(data)
    (queue.spool.folder / queue.spool.process / "id").write_text("0" * 32)
    original.with_name(f"{original.name}.{'0' * 32}.tmp").write_bytes(data[:9])
    queues().start()
    assert spooled(queue) == [queue.spool.path(cancelled.request["file"])]
    assert list((library.settings.data_dir / "originals").glob("*/*")) == [original]


def test_what_no_loader_reads_is_refused_before_it_comes(queue: IngestQueue) -> None:
    for name in ("a.exe", "kernel", ".pdf"):
        with pytest.raises(LoadError, match="which no loader reads"), queue.incoming(name):
            pass


def test_a_pdf_is_kept_while_a_document_is_made_of_it(
    queue: IngestQueue, library: Library, models: Models, collection: Collection, tmp_path: Path
) -> None:
    data = write_pdf(tmp_path / "a.pdf", [["The harbour has a crane."]]).read_bytes()
    other = library.collection_or_new("other")
    first = ended(library, send(queue, collection, "a.pdf", data))
    second = ended(library, send(queue, other, "b.pdf", data))
    kept = queue.originals.path(first.request["sha256"])
    assert kept.read_bytes() == data
    remove_documents(library, models, collection, [first.progress["document"]])
    assert kept.exists()
    newer = write_pdf(tmp_path / "b.pdf", [["The harbour has two cranes."]]).read_bytes()
    third = ended(library, send(queue, other, "b.pdf", newer))
    assert second.progress["document"] == third.progress["document"]
    assert not kept.exists() and queue.originals.path(third.request["sha256"]).exists()
    remove_collection(library, models, other)
    assert list((library.settings.data_dir / "originals").glob("*/*")) == []
