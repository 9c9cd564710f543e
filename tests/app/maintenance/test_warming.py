from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from app.errors import MaintenanceError
from app.maintenance.warming import WarmingProgress, warm
from app.settings import Settings
from app.workspace import Workspace
from ragcache.store.eviction import VARIANTS
from tests.app.maintenance.shelves import BOOKS, files, fill, make_settings, reopened

LONG = {"/long.txt": [f"Sentence number {number} of a long story about a ship." for number in range(7)]}


def run(workspace: Workspace, name: str = "default") -> WarmingProgress:
    *_, last = [WarmingProgress(), *warm(workspace, workspace.catalog.collections.get(name))]
    return last


def ingested(workspace: Workspace, tmp_path: Path, books: Mapping[str, Sequence[str]]) -> set[str]:
    """What an ingest of the same makes."""
    other = make_settings(Path(workspace.settings.model), tmp_path / "ingested")
    with Workspace(other) as fresh:
        fresh.parts = workspace.parts
        fill(fresh, books=books, kv=True)
        return files(fresh)


def test_it_computes_what_an_ingest_does_and_then_nothing(workspace: Workspace, tmp_path: Path) -> None:
    collection = fill(workspace, books={**BOOKS, **LONG})
    done = run(workspace)
    assert (done.documents, done.chunks, done.computed, done.failed) == (3, 12, 12, ())
    assert files(workspace) == ingested(workspace, tmp_path, {**BOOKS, **LONG})
    assert workspace.catalog.collections.totals(collection).kv_variants == 12
    now = workspace.catalog.collections.get("default")
    assert now.engine_fingerprint == workspace.parts.engine.spec.fingerprint
    assert run(workspace).computed == 0


def test_leads_of_a_long_document_are_computed_too(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.maintenance.warming.LEAD_TOKENS", 60)
    monkeypatch.setattr("ragcache.kvgen.LEAD_TOKENS", 60)
    fill(workspace, books=LONG)
    assert run(workspace).computed == 7 + 6
    assert files(workspace) == ingested(workspace, tmp_path, LONG)
    assert run(workspace).computed == 0


@pytest.mark.parametrize("place", [0, 1, 6])
def test_a_gap_is_filled_with_the_context_around_it(workspace: Workspace, settings: Settings, place: int) -> None:
    fill(workspace, books=LONG, kv=True)
    whole = files(workspace)
    lost = workspace.catalog.kv.all(workspace.catalog.collections.get("default"))[place].address
    next((settings.cache_dir / "kv").rglob(f"{lost}.kv")).unlink()
    with reopened(workspace) as fresh:
        assert run(fresh).computed == 1
        assert files(fresh) == whole


def test_bad_context_is_computed_again(workspace: Workspace, settings: Settings) -> None:
    fill(workspace, books=LONG, kv=True)
    whole = files(workspace)
    records = workspace.catalog.kv.all(workspace.catalog.collections.get("default"))
    torn, lost = (next((settings.cache_dir / "kv").rglob(f"{one.address}.kv")) for one in (records[2], records[3]))
    data = bytearray(torn.read_bytes())
    data[-1] ^= 1  # K and V are wrong, the head is not: it looks sound until it is read
    torn.write_bytes(data)
    lost.unlink()
    with reopened(workspace) as fresh:
        assert run(fresh).computed == 2
        assert files(fresh) == whole
        assert fresh.store.verify() == []


def test_one_that_was_stopped_goes_on(workspace: Workspace) -> None:
    collection = fill(workspace, books={**BOOKS, **LONG})
    started = warm(workspace, collection)
    assert next(started).documents == 1
    started.close()
    with_lock = run(workspace)
    assert 0 < with_lock.computed < 12
    assert run(workspace).computed == 0


def test_a_cache_that_is_too_small_stops_it(workspace: Workspace, settings: Settings) -> None:
    collection = fill(workspace, books={**BOOKS, **LONG}, kv=True)
    sizes = [path.stat().st_size for path in (settings.cache_dir / "kv").rglob("*.kv")]
    with (
        reopened(workspace, disk_bytes=sum(sizes) // 2, cache_dir=settings.cache_dir / "small") as tight,
        pytest.raises(MaintenanceError, match=r"KV cache is full after \d+ documents"),
    ):
        list(warm(tight, collection))
    with reopened(workspace, disk_bytes=0) as nowhere, pytest.raises(MaintenanceError, match="RAGCACHE_DISK_BYTES"):
        list(warm(nowhere, collection))


@pytest.mark.parametrize("lead_tokens", [1, 5000])
def test_boilerplate_of_many_documents_comes_to_an_end(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, lead_tokens: int
) -> None:
    """A chunk keeps a few variants: one that was displaced is not computed again, in this run or in the next."""
    monkeypatch.setattr("app.maintenance.warming.LEAD_TOKENS", lead_tokens)
    notice = "All rights reserved, and some wrongs."
    books = {f"/{place:02}.txt": [f"Book number {place}.", notice, f"The end of {place}."] for place in range(20)}
    often = {"/often.txt": [text for place in range(12) for text in (f"Verse {place}.", notice)]}
    fill(workspace, books={**books, **often})
    done = run(workspace)
    assert (done.documents, done.failed) == (21, ())
    notices = [len(list(folder.glob("*.kv"))) for folder in (workspace.settings.cache_dir / "kv").glob("*/*/*")]
    assert max(notices) == VARIANTS
    kept = files(workspace)
    assert run(workspace).computed == 0
    with reopened(workspace) as fresh:
        assert run(fresh).computed == 0
        assert files(fresh) == kept


def test_hashes_follow_the_tokenizer(workspace: Workspace) -> None:
    """So that deleting a document finds the KV that was computed for it."""
    collection = fill(workspace)
    chunks = workspace.catalog.chunks.of_document(1)
    right = [(chunk.id, chunk.tokens, chunk.token_hash) for chunk in chunks]
    workspace.catalog.chunks.retokenize(collection, [(chunk.id, 99, f"{chunk.id:064x}") for chunk in chunks])
    run(workspace)
    again = workspace.catalog.chunks.of_document(1)
    assert [(chunk.id, chunk.tokens, chunk.token_hash) for chunk in again] == right


def test_a_chunk_that_the_model_cannot_take_is_told_and_the_rest_goes_on(workspace: Workspace) -> None:
    huge = " ".join(f"word{number}" for number in range(1500))
    fill(workspace, books={"/a-huge.txt": ["Before.", huge], **BOOKS})
    done = run(workspace)
    assert (done.documents, done.computed) == (3, 1 + 5)
    ((source, reason),) = done.failed
    assert source == "/a-huge.txt"
    assert "context has 2048" in reason
