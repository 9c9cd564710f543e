"""What an ingest reckons with: files that will not be read, older versions, KV of unknown size, and that of others."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app import Settings
from app.ingestion import IngestOptions
from app.ingestion.capture import KvRemoval
from app.ingestion.ingest import Ingest
from app.ingestion.outlook import FILES, looked_at
from app.ingestion.room import OTHERS_GO, DiskCheck, KvRoom
from app.ingestion.survey import Pending
from app.library import Library
from app.library.catalog.records import FileState
from app.models import Models
from app.models.loading import load_store
from ragcache.errors import StoreFull
from tests.app.ingestion.conftest import Run, budget, nbytes
from tests.ragcache.store.conftest import build_variant


def test_a_file_that_no_loader_will_read_takes_no_room_of_others(library: Library, models: Models, books: Path) -> None:
    """A sparse file of a terabyte."""
    with (books / "rows.csv").open("wb") as file:
        file.truncate(1 << 40)
    told: list[str] = []
    for kv, documents in (("auto", 3), ("eager", None)):
        options = IngestOptions(kv=kv, workers=1, retry_failed=True)  # type: ignore[arg-type]
        result = Ingest(library, models, library.collection_or_new("default"), options, tell=told.append).run([books])
        assert [failure.source for failure in result.failed] == [str(books / "rows.csv")]
        assert (result.on_use, result.kv_variants > 0) == (0, documents is not None)
    assert told[0].startswith("3 documents, about ") and "of KV, computed now (auto:" in told[0]
    assert not any("warning" in text for text in told)


def test_a_document_reserves_no_more_than_it_grows(library: Library, models: Models, docs: Path) -> None:
    """One that was only touched has its room in the catalog already; and a catalog on a server takes none here."""
    file, known = docs / "a.txt", FileState(1, "hash", 9_000, 1, "ready", 1, None)
    check = DiskCheck(library.settings, 0, library.collection_or_new())
    new, failed = Pending(str(file), 9_000, None), Pending(str(file), 9_000, replace(known, state="failed"))
    touched, shorter, longer = (Pending(str(file), size, known) for size in (9_000, 5, 12_000))
    (whole,) = check.growth([new]).values()
    assert [*check.growth([touched]).values(), *check.growth([shorter]).values()] == [0, 0]
    assert [*check.growth([longer]).values()] == [pytest.approx(whole / 3, abs=2)]
    assert [*check.growth([failed]).values()] == [whole]
    served = library.settings.model_copy(update={"database_url": SecretStr("postgresql://host/name")})
    (of_index,) = DiskCheck(served, 0, library.collection_or_new()).growth([new]).values()
    assert 0 < of_index < whole / 2


def test_where_the_size_of_kv_is_not_told_the_room_of_the_catalog_is_left_all_the_same(
    ingest: Run, library: Library, models: Models, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry is held against the disk, with what is still to come."""
    monkeypatch.setattr("app.ingestion.estimate.read_shape", lambda _: None)
    monkeypatch.setattr(Settings, "disk_floor", 1 << 30)
    for module in ("app.ingestion.room", "ragcache.store.disk_room"):
        monkeypatch.setattr(f"{module}.free_bytes", lambda _: (1 << 30) + (2 << 20) - 1)
    room, large = KvRoom(models, "auto"), Pending("/large.txt", 2 << 20, None)
    room.keep_for({large.source: 2 << 20})
    assert room.nbytes(["A text."]) == 0
    with pytest.raises(StoreFull, match="has no room on the disk"):
        room.store.put(build_variant((1, 2)))
    room.came(large)
    room.store.put(build_variant((1, 2)))
    told: list[str] = []
    collection = library.collection_or_new("default")
    Ingest(library, models, collection, IngestOptions(workers=1, kv="auto"), tell=told.append).run([books])
    assert "KV of unknown size" in told[0] and "0.0 MiB" not in told[0]


def test_a_rehearsal_makes_no_store(library: Library, models: Models, books: Path) -> None:
    budget(library, models, 64 << 20)  # less than the disk has free, on any machine
    told: list[str] = []
    options = IngestOptions(dry_run=True, kv="auto", workers=1)
    assert Ingest(library, models, None, options, tell=told.append).run([books]).kv_disk_bytes
    assert not library.settings.kv_folder.exists()
    assert told[0].endswith("of KV, computed now (auto: 64.0 MiB are left for it)")


def test_a_rehearsal_counts_what_is_there(ingest: Run, library: Library, models: Models, of_one: int) -> None:
    settings = library.settings
    assert KvRoom(models, "auto", looking=True)._of_budget() == settings.disk_bytes - nbytes(settings)


def test_kv_of_a_model_of_before_is_named_where_it_takes_the_room(
    ingest: Run, library: Library, models: Models, books: Path, of_one: int
) -> None:
    budget(library, models, of_one + 1_000)
    (own,) = ingest(books / "harbour.txt", kv="auto").notes
    assert "--all-engines" not in own and "raise RAGCACHE_DISK_BYTES" in own
    load_store(library.settings.model_copy(update={"disk_bytes": 1 << 30})).put(build_variant((1, 2)))
    (note,) = ingest(books / "lighthouse.txt", kv="auto").notes
    assert f"{OTHERS_GO}, or raise RAGCACHE_DISK_BYTES" in note


def test_without_kv_nothing_is_told_to_come_back(
    ingest: Run, library: Library, models: Models, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had seen a text that goes is lost, and under `off` nobody computes it again."""
    ingest(kv="auto")
    monkeypatch.setattr(KvRemoval, "finish", lambda removal: {"lost"})
    assert any("had seen texts that are gone" in note for note in ingest(kv="on-use").notes)
    assert ingest(kv="off").notes == ()


def test_texts_that_were_looked_at_are_held_no_longer_than_others() -> None:
    class Text:
        pass

    def read() -> Iterator[Any]:
        for number in range(FILES + 2):
            yield Pending(f"/{number}.txt", 1, None), Text()

    first, outcomes = looked_at(read())
    held = [weakref.ref(text) for _, text in first]
    assert len(held) == FILES
    for number, (_, text) in enumerate(outcomes):
        alive = sum(one() is not None for one in held)
        assert alive == max(0, FILES - number) + (text is None)
    assert not first
