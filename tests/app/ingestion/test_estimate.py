"""What a rehearsal says an ingest will come to, against the ingest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import app.ingestion.estimate as estimating
from app.library import Library
from app.models import Models
from app.samples import read_samples
from ragcache.kvgen import LEAD_TOKENS
from ragcache.store.codec import CODECS
from tests.app.ingestion.conftest import Run


def write(docs: Path, *, long: bool = False) -> None:
    for name, text in read_samples().items():
        (docs / name).write_text(text)
    if long:
        (docs / "long.txt").write_text(" ".join(f"The keeper wrote line {number} of the log." for number in range(900)))


def kv_files(library: Library, models: Models) -> list[int]:
    """Sizes of all but the System segment's."""
    system = models.cache.kvgen.system_key(models.template.system()).digest
    found = (library.settings.cache_dir / "kv").glob("*/*/*/*.kv")
    return [path.stat().st_size for path in found if path.stem != system]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("context", [0, 3])
def test_it_is_what_the_ingest_comes_to(
    ingest: Run, library: Library, models: Models, docs: Path, codec: str, context: int
) -> None:
    object.__setattr__(library.settings, "codec", codec)
    object.__setattr__(library.settings, "context_chunks", context)
    models.language = replace(models.language, settings=library.settings)
    write(docs, long=codec == "bf16")
    told = ingest(kv="eager", dry_run=True)
    assert kv_files(library, models) == []
    done = ingest(kv="eager")
    assert (told.added, told.chunks, told.tokens, told.notes) == (done.added, done.chunks, done.tokens, ())
    more = told.kv_variants - done.kv_variants
    assert 0 <= more <= (done.added if context else 0), "what opens a document may be there, and the first has nothing"
    assert (told.kv_variants > told.chunks) == (context > 0), "what opens documents, and lead variants of the long one"
    each = sum(kv_files(library, models)) / done.kv_variants
    assert told.kv_disk_bytes / told.kv_variants == pytest.approx(each, rel=0.08 if context else 0)
    assert (told.kv_bytes, done.kv_disk_bytes) == (0, 0)
    assert codec != "bf16" or done.tokens > LEAD_TOKENS


def test_time_is_that_of_earlier_ingests(ingest: Run, docs: Path) -> None:
    write(docs)
    assert ingest(kv="eager", dry_run=True).expected_seconds is None
    done = ingest()
    for path in docs.iterdir():
        path.write_text(path.read_text() + "\nOne more line.\n")
    told = ingest(dry_run=True)
    assert told.expected_seconds is not None
    assert 0 < told.expected_seconds < 10 * done.seconds
    assert ingest(kv="eager", dry_run=True).expected_seconds is None, "computing KV takes longer"
    assert (told.kv_variants, told.kv_disk_bytes) == (0, 0)


def test_of_much_text_the_rest_is_reckoned(ingest: Run, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(docs)
    (docs / "z.txt").write_text(read_samples()["lighthouse.md"])
    exact = ingest(kv="eager", dry_run=True)
    characters = sum(len(path.read_text()) for path in docs.iterdir())
    monkeypatch.setattr(estimating, "CUT", characters // 2)
    told = ingest(kv="eager", dry_run=True)
    assert any("reckoned" in note for note in told.notes)
    assert told.added == exact.added
    for name in ("chunks", "tokens", "kv_variants", "kv_disk_bytes"):
        assert getattr(told, name) == pytest.approx(getattr(exact, name), rel=0.25), name


def test_nothing_new_is_nothing(ingest: Run, docs: Path) -> None:
    write(docs)
    ingest()
    told = ingest(kv="eager", dry_run=True)
    assert (told.added, told.chunks, told.tokens, told.kv_disk_bytes, told.expected_seconds) == (0, 0, 0, 0, None)
