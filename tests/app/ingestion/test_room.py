from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import app.ingestion.room as room
from app.errors import DiskShort, IngestError
from app.ingestion import IngestOptions
from app.ingestion.ingest import Ingest
from app.ingestion.room import DiskCheck
from app.library import Library
from app.models import Models
from app.models.sentences import sentences_of
from app.settings import GIB, KvMode
from ragcache.host import free_bytes
from retriever.sentences import pack
from tests.app.ingestion.conftest import Run


def warnings(library: Library, models: Models, docs: Path, *, kv: KvMode = "eager") -> list[str]:
    told: list[str] = []
    collection = library.collection_or_new("default")
    Ingest(library, models, collection, IngestOptions(kv=kv, workers=1), tell=told.append).run([docs])
    return [text for text in told if text.startswith("warning: ")]


def test_it_is_told_before_kv_pushes_out_older_kv(library: Library, models: Models, docs: Path) -> None:
    (docs / "a.txt").write_text("Words of the harbour master. " * 200)
    assert warnings(library, models, docs) == []
    (docs / "b.txt").write_text("Words of the baker. " * 200)
    object.__setattr__(library.settings, "disk_bytes", 100_000)
    (warning,) = warnings(library, models, docs)
    assert "RAGCACHE_DISK_BYTES keeps" in warning
    (docs / "c.txt").write_text("Words of the keeper. " * 200)
    assert warnings(library, models, docs, kv="on-use") == []


@pytest.mark.slow
def test_it_is_told_before_the_disk_is_too_small(
    library: Library, models: Models, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "a.txt").write_text("Words of the harbour master. " * 200)
    monkeypatch.setattr(room, "free_bytes", lambda folder: room.RESERVE + 1000)  # others write to the disk meanwhile
    told: list[str] = []
    run = Ingest(
        library, models, library.collection_or_new("default"), IngestOptions(workers=1, kv="eager"), tell=told.append
    )
    with pytest.raises(DiskShort, match="is nearly full"):
        run.run([docs])
    assert "MiB free: the ingest will stop" in told[0]


def test_it_stops_before_the_disk_is_full_and_goes_on_later(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "a.txt").write_text("Words.")
    ingest(kv="eager")
    before = sorted(library.settings.cache_dir.rglob("*.kv"))
    (docs / "b.txt").write_text("More words.")
    with monkeypatch.context() as small:
        small.setattr(room, "RESERVE", 1 << 60)
        for kv in ("eager", "on-use"):
            with pytest.raises(DiskShort, match="Free some space and run the same command again"):
                ingest(kv=kv)
    collection = library.catalog.collections.get("default")
    assert len(library.catalog.documents.all(collection)) == 1
    assert sorted(library.settings.cache_dir.rglob("*.kv")) == before
    assert ingest(kv="eager").added == 1


@pytest.mark.parametrize("dimension", [384, 1024, 4096])
def test_the_vectors_of_a_text_are_reckoned_with(
    library: Library, monkeypatch: pytest.MonkeyPatch, dimension: int
) -> None:
    """Of its chunks, which are also in the index, and of their sentences: they take many times the text."""
    text = "\n".join(f"In year {year} the keeper of the light wrote a line." for year in range(2000))
    chunks = [text[start : start + 400] for start in range(0, len(text), 400)]
    sentences = sum(len(pack(np.ones((len(sentences_of(chunk)), dimension), np.float32))) for chunk in chunks)
    of_catalog, of_index = sentences + len(chunks) * dimension * 4 + 2 * len(text), len(chunks) * dimension * 4
    collection = replace(library.collection_or_new(), dimension=dimension)
    checked = DiskCheck(library.settings, 0, collection)
    needed = 2 * of_catalog + of_index
    assert needed <= checked.of_text(text, len(chunks)) <= 1.6 * needed
    assert checked.of_text(text) <= checked.of_text(text, len(chunks)), "it may be cut into fewer"
    small = replace(collection, splitter_settings={"max_tokens": 24})
    assert DiskCheck(library.settings, 0, small).of_text(text) > 1.5 * checked.of_text(text), (
        "more chunks, more vectors"
    )
    spec = "llama_index.core.node_parser.SentenceSplitter:chunk_size"
    for size, like in ((24, small), (9000, collection)):
        its_own = DiskCheck(library.settings, 0, replace(collection, splitter=f"{spec}={size}"))
        assert its_own.of_text(text) == DiskCheck(library.settings, 0, like).of_text(text)
    monkeypatch.setattr(room, "free_bytes", lambda folder: room.RESERVE + needed)
    with pytest.raises(DiskShort, match="is nearly full"):
        checked.check(text + text, 2 * len(chunks))
    with pytest.raises(DiskShort, match="is nearly full"):
        checked.check(text * 4)
    monkeypatch.setattr(room, "free_bytes", lambda folder: 2 * room.RESERVE)
    monkeypatch.setattr(room, "ORDINARY", 1 << 40)
    with pytest.raises(DiskShort, match="is nearly full"):
        checked.check(text * 200)
    monkeypatch.setattr(room, "ORDINARY", needed)
    with pytest.raises(IngestError, match="is nearly full") as alone:
        checked.check(text * 200)
    assert not isinstance(alone.value, DiskShort), "others have room: no wait helps this one"
    DiskCheck(library.settings, 0, replace(collection, dimension=8)).check(text)


@pytest.mark.parametrize("stop", "।۔።։။។")
def test_sentences_of_any_script_are_reckoned_with(library: Library, stop: str) -> None:
    checked = DiskCheck(library.settings, 0, library.collection_or_new())
    assert checked.of_text(f"अ आ{stop} " * 1000) == checked.of_text("अ आ. " * 1000)


def test_the_embedder_of_the_collection_says_what_vectors_take(
    ingest: Run, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "a.txt").write_text("Words of the harbour master. " * 200)
    monkeypatch.setattr(room, "free_bytes", lambda folder: room.RESERVE + 4 * 200 * 29)  # of 4 bytes a character
    with pytest.raises(DiskShort, match="is nearly full"):
        ingest()


def test_a_reserve_is_kept() -> None:
    assert room.RESERVE >= 64 << 20


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not" / "there") > 0


@pytest.mark.parametrize(
    ("size", "floor"),
    [(GIB // 2, GIB // 8), (2 * GIB, GIB // 2), (4 * GIB, GIB), (60 * GIB, 3 * GIB), (1 << 50, 10 * GIB)],
)
def test_a_small_disk_has_room_for_kv_too(
    library: Library, monkeypatch: pytest.MonkeyPatch, size: int, floor: int
) -> None:
    monkeypatch.setattr("app.settings.disk_size", lambda _: size)
    assert library.settings.disk_floor == floor
