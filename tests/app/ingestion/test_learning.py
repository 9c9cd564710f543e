"""An ingest ends with what the collection learns of its search, and does not depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.ingestion import ingest as module
from app.library import Library
from tests.app.ingestion.conftest import Run
from tests.withholding import by_words

pytestmark = pytest.mark.slow


def write(docs: Path, first: int, last: int) -> None:
    """Documents of a chunk each."""
    for number, sentences in list(enumerate(by_words(last), start=1))[first - 1 :]:
        (docs / f"{number}.txt").write_text(" ".join(sentences))


def kept(library: Library) -> Mapping[str, Any] | None:
    return library.catalog.collections.get("default").retrieval


def test_it_learns_at_its_end_and_again_when_the_collection_has_doubled(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(docs, 1, 22)
    assert ingest().chunks == 22
    first = kept(library)
    assert first is not None
    assert (first["by"], first["chunks"], first["sampled"]) == ("collection", 22, 22)
    write(docs, 23, 23)
    assert (ingest().added, kept(library)) == (1, first), "not for one document more"
    write(docs, 24, 44)
    ingest()
    second = kept(library)
    assert second is not None
    assert (second["chunks"], second["sampled"]) == (44, 44)

    assert ingest().unchanged == 44
    assert kept(library) == second


def test_what_was_stopped_before_it_had_learnt_learns_the_next_time(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(docs, 1, 22)
    with monkeypatch.context() as patch:
        patch.setattr(module, "learn_if_due", lambda *_, **__: None)
        ingest()
    assert kept(library) is None
    assert ingest().unchanged == 22
    assert kept(library) is not None


def test_what_a_newer_version_has_learnt_stays_while_nothing_is_written(
    ingest: Run, library: Library, docs: Path
) -> None:
    write(docs, 1, 22)
    ingest()
    newer = {"vector_share": 0.4, "fusion": "neural", "by": "collection", "chunks": 22}
    library.catalog.collections.set_retrieval(library.collection(), newer)
    assert ingest().unchanged == 22
    assert kept(library) == newer
    write(docs, 23, 23)
    ingest()
    found = kept(library)
    assert found is not None
    assert found["fusion"] == "linear"


def test_a_dry_run_learns_nothing(ingest: Run, library: Library, docs: Path) -> None:
    write(docs, 1, 22)
    ingest(dry_run=True)
    assert kept(library) is None


def test_what_cannot_be_learnt_makes_no_ingest_fail(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no deviation at all")

    write(docs, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr("app.library.learning.balance", fail)
        result = ingest()
    assert (result.added, result.failed) == (2, ())
    assert library.catalog.runs.newest(library.collection())[0].state == "done"
    assert "no deviation at all" in caplog.text
    assert kept(library) is None
    write(docs, 3, 3)
    ingest()
    assert kept(library) is not None, "the next one learns it"
