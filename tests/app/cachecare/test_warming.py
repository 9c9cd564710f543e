from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from app.cachecare.warming import WarmingProgress, warm
from app.errors import IngestStopped, MaintenanceError
from app.library import Library
from app.library.catalog import open_catalog
from app.library.inspection import summaries
from app.models import Models
from app.settings import Settings
from ragcache.store.eviction import VARIANTS
from tests.app.library.shelves import BOOKS, addresses, files, fill, make_settings, reopened

LONG = {"/long.txt": [f"Sentence number {number} of a long story about a ship." for number in range(7)]}


def run(library: Library, models: Models, name: str = "default") -> WarmingProgress:
    *_, last = [WarmingProgress(), *warm(library, models, library.catalog.collections.get(name))]
    return last


def ingested(library: Library, models: Models, tmp_path: Path, books: Mapping[str, Sequence[str]]) -> set[str]:
    """What an ingest of the same makes."""
    other = make_settings(Path(library.settings.model), tmp_path / "ingested")
    with open_catalog(other) as catalog:
        fresh = Models(other, models.language)
        elsewhere = Library(other, catalog, fresh)
        fill(elsewhere, fresh, books=books, kv=True)
        return files(elsewhere)


def test_it_computes_what_an_ingest_does_and_then_nothing(library: Library, models: Models, tmp_path: Path) -> None:
    fill(library, models, books=LONG)  # what several stand behind: test_order.py, test_long_order.py
    done = run(library, models)
    assert (done.documents, done.chunks, done.computed, done.failed) == (1, 7, 7, ())
    assert files(library) == ingested(library, models, tmp_path, LONG)
    assert summaries(library, models)[0].kv_variants == 7
    now = library.catalog.collections.get("default")
    assert now.engine_fingerprint == models.language.engine.spec.fingerprint
    assert run(library, models).computed == 0


def test_leads_of_a_long_document_are_computed_too(
    library: Library, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cachecare.warming.LEAD_TOKENS", 60)
    monkeypatch.setattr("ragcache.kvgen.LEAD_TOKENS", 60)
    fill(library, models, books=LONG)
    assert run(library, models).computed == 7 + 6
    assert files(library) == ingested(library, models, tmp_path, LONG)
    assert run(library, models).computed == 0


@pytest.mark.parametrize("place", [0, 1, 6])
def test_a_gap_is_filled_with_the_context_around_it(
    library: Library, models: Models, settings: Settings, place: int
) -> None:
    fill(library, models, books=LONG, kv=True)
    whole = files(library)
    lost = addresses(library, library.catalog.collections.get("default"))[place]
    next((settings.cache_dir / "kv").rglob(f"{lost}.kv")).unlink()
    assert run(*reopened(library, models)).computed == 1
    assert files(library) == whole


def test_bad_context_is_computed_again(library: Library, models: Models, settings: Settings) -> None:
    fill(library, models, books=LONG, kv=True)
    whole = files(library)
    stored = addresses(library, library.catalog.collections.get("default"))
    torn, lost = (next((settings.cache_dir / "kv").rglob(f"{one}.kv")) for one in stored[2:4])
    data = bytearray(torn.read_bytes())
    data[-1] ^= 1  # K and V are wrong, the head is not: it looks sound until it is read
    torn.write_bytes(data)
    lost.unlink()
    fresh = reopened(library, models)
    assert run(*fresh).computed == 2
    assert files(library) == whole
    assert fresh[1].store.verify() == []


def test_one_that_was_stopped_goes_on(library: Library, models: Models) -> None:
    collection = fill(library, models, books={**BOOKS, **LONG})
    started = warm(library, models, collection)
    assert next(started).documents == 1
    started.close()
    with_lock = run(library, models)
    assert 0 < with_lock.computed < 12
    assert run(library, models).computed == 0


def test_a_cache_that_is_too_small_stops_it(library: Library, models: Models, settings: Settings) -> None:
    collection = fill(library, models, books={**BOOKS, **LONG}, kv=True)
    sizes = [path.stat().st_size for path in (settings.cache_dir / "kv").rglob("*.kv")]
    tight = reopened(library, models, disk_bytes=sum(sizes) // 2, cache_dir=settings.cache_dir / "small")
    with pytest.raises(MaintenanceError, match="KV cache is full, and more would push out what is in it"):
        list(warm(*tight, collection))
    with pytest.raises(MaintenanceError, match="RAGCACHE_DISK_BYTES"):
        list(warm(*reopened(library, models, disk_bytes=0), collection))


def test_one_that_gives_way_in_a_cache_that_is_full_has_no_other_turn(
    library: Library, models: Models, settings: Settings
) -> None:
    collection = fill(library, models, books={**BOOKS, **LONG}, kv=True)
    sizes = [path.stat().st_size for path in (settings.cache_dir / "kv").rglob("*.kv")]
    tight = reopened(library, models, disk_bytes=sum(sizes) // 2, cache_dir=settings.cache_dir / "small")

    def check(error: BaseException) -> None:
        if tight[1].store.kept.crowded_out:
            raise error

    with pytest.raises(MaintenanceError, match="KV cache is full"):
        list(warm(*tight, collection, check=lambda: check(IngestStopped("others wait"))))
    with pytest.raises(KeyboardInterrupt):
        list(warm(*tight, collection, check=lambda: check(KeyboardInterrupt())))


@pytest.mark.parametrize("most", [1, 2, VARIANTS])
@pytest.mark.parametrize("lead_tokens", [1, 5000])
def test_boilerplate_of_many_documents_comes_to_an_end(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch, lead_tokens: int, most: int
) -> None:
    """A chunk keeps a few variants: one that was displaced is not computed again, in this run or in the next."""
    monkeypatch.setattr("app.cachecare.warming.LEAD_TOKENS", lead_tokens)
    notice = "All rights reserved, and some wrongs."
    library, models = reopened(library, models, variants=most)
    books = {f"/{place:02}.txt": [f"Book number {place}.", notice, f"The end of {place}."] for place in range(20)}
    often = {"/often.txt": [text for place in range(12) for text in (f"Verse {place}.", notice)]}
    fill(library, models, books={**books, **often})
    done = run(library, models)
    assert (done.documents, done.failed) == (21, ())
    notices = [len(list(folder.glob("*.kv"))) for folder in (library.settings.cache_dir / "kv").glob("*/*/*")]
    assert max(notices) == most
    kept = files(library)
    assert run(library, models).computed == 0
    assert run(*reopened(library, models)).computed == 0
    assert files(library) == kept


def test_hashes_follow_the_tokenizer(library: Library, models: Models) -> None:
    """So that deleting a document finds the KV that was computed for it."""
    collection = fill(library, models)
    chunks = library.catalog.chunks.of_document(1)
    right = [(chunk.id, chunk.tokens, chunk.token_hash) for chunk in chunks]
    library.catalog.chunks.retokenize(collection, [(chunk.id, 99, f"{chunk.id:064x}") for chunk in chunks])
    run(library, models)
    again = library.catalog.chunks.of_document(1)
    assert [(chunk.id, chunk.tokens, chunk.token_hash) for chunk in again] == right


def test_a_chunk_that_the_model_cannot_take_is_told_and_the_rest_goes_on(library: Library, models: Models) -> None:
    huge = " ".join(f"word{number}" for number in range(1500))
    fill(library, models, books={"/a-huge.txt": ["Before.", huge], **BOOKS})
    done = run(library, models)
    assert (done.documents, done.computed) == (3, 1 + 5 + 1), "the first one of the long text also as a lead"
    ((source, reason),) = done.failed
    assert source == "/a-huge.txt"
    assert "context has 2048" in reason
