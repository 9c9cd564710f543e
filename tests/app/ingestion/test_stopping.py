"""An ingest that is kept out, waits, or is stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import app.ingestion.writer as writing
from app.errors import CatalogError, CollectionBusy, IngestStopped
from app.ingestion import IngestOptions, IngestProgress
from app.ingestion.ingest import Ingest
from app.library import Library
from app.models import Models
from tests.app.ingestion.conftest import Run
from tests.app.library.catalog.test_failures import public_folder, without_rights

__all__ = ["public_folder"]


def test_a_second_one_is_told_who_is_first(library: Library, models: Models, docs: Path, ingest: Run) -> None:
    (docs / "a.txt").write_text("Words.")
    collection, refused = library.collection_or_new("default"), list[str]()

    def second(_: IngestProgress) -> None:
        with pytest.raises(CollectionBusy) as failed:
            ingest()
        refused.append(str(failed.value))

    Ingest(library, models, collection, IngestOptions(kv="on-use"), second).run([docs])
    assert refused[0].startswith(f"another ingest (process {os.getpid()}, since ")
    assert "--wait" in refused[0]
    assert ingest().unchanged == 1


def test_whoever_else_holds_the_lock_is_somebody(library: Library, docs: Path, ingest: Run) -> None:
    collection = library.collection_or_new("default")
    busy = r"^another process is working on collection 'default'.*--wait$"
    with library.catalog.alone(collection), pytest.raises(CollectionBusy, match=busy):
        ingest()


def test_waiting_is_told_and_ends(library: Library, models: Models, docs: Path) -> None:
    (docs / "a.txt").write_text("Words.")
    collection = library.collection_or_new("default")
    told, waits = list[str](), threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        waits.set()

    run = Ingest(library, models, collection, IngestOptions(kv="on-use", wait=True), tell=tell)
    with ThreadPoolExecutor(1) as thread:
        with library.catalog.alone(collection):
            future = thread.submit(run.run, [docs])
            assert waits.wait(60)
            assert not future.done()
        assert future.result().added == 1
    assert told[0] == "another process is working on collection 'default': waiting for it"


def test_other_collections_are_free(library: Library, models: Models, docs: Path, ingest: Run) -> None:
    (docs / "a.txt").write_text("Words.")
    other = library.collection_or_new("other")
    run = Ingest(library, models, library.collection_or_new("default"), IngestOptions(kv="on-use"), lambda _: done())

    def done() -> None:
        assert Ingest(library, models, other, IngestOptions(kv="on-use")).run([docs]).added == 1

    assert run.run([docs]).added == 1


def test_a_collection_that_goes_meanwhile_is_missed(library: Library, models: Models, docs: Path) -> None:
    collection = library.collection_or_new("default")
    library.catalog.collections.delete(collection)
    with pytest.raises(CatalogError, match="no collection 'default'"):
        Ingest(library, models, collection).run([docs])


def test_ctrl_c_keeps_what_is_in_and_drops_the_rest(
    library: Library, models: Models, docs: Path, ingest: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "TOGETHER", 1)  # each document for itself
    for name in "abc":
        (docs / f"{name}.txt").write_text(f"Words of {name}.")
    collection = library.collection_or_new("default")

    def stop(progress: IngestProgress) -> None:
        if progress.files == 2:
            raise KeyboardInterrupt

    run = Ingest(library, models, collection, IngestOptions(kv="on-use"), stop)
    with pytest.raises(KeyboardInterrupt):
        run.run([docs])
    assert run.result.added == 2
    assert len(library.catalog.documents.all(collection)) == 2
    (newest,) = library.catalog.runs.newest(collection)
    assert (newest.state, newest.counts["added"]) == ("interrupted", 2)
    again = ingest()
    assert (again.added, again.unchanged) == (1, 2)


@pytest.mark.parametrize(("splitter", "at"), [("semantic", "vectors"), ("semantic", "tokens"), ("fixed", "tokens")])
def test_a_long_text_is_split_no_further(
    library: Library, models: Models, docs: Path, monkeypatch: pytest.MonkeyPatch, splitter: str, at: str
) -> None:
    (docs / "a.txt").write_text(" ".join(f"The keeper wrote line {line} of the log." for line in range(20_000)))
    collection, options = library.collection_or_new("default"), IngestOptions(kv="on-use", workers=1, splitter=splitter)
    run, read = Ingest(library, models, collection, options), list[str]()

    def heard(what: str, reading: Callable[..., Any]) -> Callable[..., Any]:
        def read_and_stop(texts: Any) -> Any:
            read.append(what)
            if what == at:
                run.stop()
            return reading(texts)

        return read_and_stop

    monkeypatch.setattr(models.template.tokens, "offsets", heard("tokens", models.template.tokens.offsets))
    monkeypatch.setattr(models.sentences, "embed", heard("vectors", models.sentences.embed))
    with pytest.raises(IngestStopped):
        run.run([docs])
    assert read.count(at) == 1 and read[-1] == at, "what was begun ends, and nothing is begun behind it"
    assert run.result.added == 0 and not library.catalog.documents.all(collection)


def test_runs_are_written_down(library: Library, docs: Path, ingest: Run) -> None:
    (docs / "a.txt").write_text("Words.")
    (docs / "b.txt").write_bytes(b"")
    ingest()
    (newest,) = library.catalog.runs.newest(library.catalog.collections.get("default"))
    assert (newest.state, newest.counts["added"], newest.counts["failed"]) == ("done", 1, 1)


def test_a_lock_that_cannot_be_made_is_told(library: Library, models: Models, docs: Path) -> None:
    collection = library.collection_or_new("default")
    locks = library.settings.data_dir / "locks"
    locks.chmod(0o555)
    with without_rights(), pytest.raises(CatalogError, match=r"lock: it cannot be written\. Make the file"):
        Ingest(library, models, collection).run([docs])
    locks.chmod(0o755)
