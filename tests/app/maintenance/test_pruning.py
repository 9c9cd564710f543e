from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from app.catalog import CatalogError
from app.maintenance.census import Census, FileTally, shares, take_census
from app.maintenance.pruning import prune, verify
from app.settings import Settings
from app.workspace import Workspace
from ragcache.errors import ModelError
from ragcache.types import Variant
from tests.app.maintenance.shelves import BOOKS, files, fill, make_collection, make_settings

LOST = ["A page that was torn out.", "And the one behind it."]


def ingest_lost(workspace: Workspace, texts: list[str] | None = None) -> list[Variant]:
    """KV without chunks, as a killed ingest leaves it."""
    segments = [workspace.template.chunk(text) for text in texts or LOST]
    return list(workspace.cache.ingest(workspace.template.system(), segments))


def test_what_no_chunk_needs_goes(workspace: Workspace) -> None:
    fill(workspace, kv=True)
    kept = files(workspace)
    lost = ingest_lost(workspace)
    assert files(workspace) - kept == {variant.key.digest for variant in lost}
    would = prune(workspace, dry=True)
    assert (would.unreferenced.entries, would.dry) == (2, True)
    assert files(workspace) > kept, "a dry run leaves all"
    done = prune(workspace)
    assert (done.unreferenced, done.other) == (would.unreferenced, FileTally())
    assert files(workspace) == kept
    workspace.store.check_integrity()
    assert prune(workspace).unreferenced == FileTally()


def test_a_cache_that_is_not_there_is_not_made(workspace: Workspace) -> None:
    assert prune(workspace).unreferenced == FileTally()
    assert verify(workspace).entries == 0
    assert take_census(workspace).live == []
    assert not workspace.settings.cache_dir.exists()


def test_other_engines_and_systems_go_when_asked(workspace: Workspace, settings: Settings) -> None:
    fill(workspace, kv=True)
    kept = files(workspace)
    changed = settings.model_copy(update={"system_prompt": "Answer in verse."})
    with Workspace(changed, workspace.catalog) as other:
        ingest_lost(other, list(BOOKS["/books/rye.txt"]))
        ingest_lost(other)
    bfloat = settings.model_copy(update={"dtype": "bfloat16"})
    with Workspace(bfloat, workspace.catalog) as another:
        ingest_lost(another)
    census = take_census(workspace)
    assert (len(census.live), len(census.dead), len(census.other)) == (6, 0, 5 + 3)
    assert prune(workspace).other == FileTally()
    assert prune(workspace, others=True).other.entries == 8
    assert files(workspace) == kept


def test_nothing_goes_while_an_ingest_runs(workspace: Workspace) -> None:
    fill(workspace, kv=True)
    other = make_collection(workspace, "other")
    lost = {variant.key.digest for variant in ingest_lost(workspace)}
    with workspace.catalog.alone(other):
        with pytest.raises(CatalogError, match="collection 'other': try again when it is done"):
            prune(workspace)
        assert prune(workspace, dry=True).unreferenced.entries == 2
    assert lost < files(workspace)


def test_what_is_written_meanwhile_stays(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ingest into a collection that is made after the locks were taken."""
    fill(workspace, kv=True)
    gone = {variant.key.digest for variant in ingest_lost(workspace)}
    new: set[str] = set()

    def census_late(workspace: Workspace) -> Census:
        new.update(variant.key.digest for variant in ingest_lost(workspace, ["Of a new collection."]))
        return take_census(workspace)

    monkeypatch.setattr("app.maintenance.pruning.take_census", census_late)
    assert prune(workspace).unreferenced.entries == len(gone)
    assert new < files(workspace)
    assert not gone & files(workspace)


def test_pinned_kv_stays(workspace: Workspace) -> None:
    fill(workspace, kv=True)
    lost = ingest_lost(workspace)
    workspace.store.pin(lost[0].key)
    assert prune(workspace, dry=True).unreferenced.entries == 1
    assert prune(workspace).unreferenced.entries == 1
    assert lost[0].key.digest in files(workspace)


def test_kv_under_hashes_of_another_tokenizer_is_live(workspace: Workspace) -> None:
    """SQL's hashes are those of the ingest; an answer uses those of the tokenizer of today."""
    collection = fill(workspace, kv=True)
    kept = files(workspace)
    documents = workspace.catalog.documents.all(collection)
    chunks = [chunk for document in documents for chunk in workspace.catalog.chunks.of_document(document.id)]
    changes = [(chunk.id, 3, f"{chunk.id:064x}") for chunk in chunks]
    workspace.catalog.chunks.retokenize(collection, changes)
    ingest_lost(workspace)
    assert prune(workspace).unreferenced.entries == 2
    assert files(workspace) == kept


def test_leftovers_of_killed_processes_and_old_bad_files_go(workspace: Workspace) -> None:
    fill(workspace, kv=True)
    folder = workspace.settings.cache_dir / "kv"
    victim = next(folder.glob("*/*/*/*.kv"))
    victim.write_bytes(victim.read_bytes()[:-1])
    (folder / "writing" / "x.1.abc.tmp").write_bytes(b"half")
    found = verify(workspace)
    assert (found.entries, [Path(flaw.where).name for flaw in found.flaws]) == (6, [victim.name])
    assert victim.name in found.flaws[0].reason
    assert verify(workspace).flaws == ()
    pruned = prune(workspace)
    assert (pruned.temporaries, pruned.quarantined) == (1, 0)
    assert prune(workspace, dry=True, quarantine_age=timedelta(0)).quarantined == 1
    assert prune(workspace, quarantine_age=timedelta(0)).quarantined == 1
    assert list((folder / "quarantine").iterdir()) == []


def test_flawed_and_pruned_kv_leaves_the_totals(workspace: Workspace, settings: Settings) -> None:
    collection = fill(workspace, kv=True)
    workspace.store.verify()
    assert workspace.catalog.collections.totals(collection).kv_variants == 5
    recorded = workspace.catalog.kv.all(collection)[0]
    path = next((settings.cache_dir / "kv").rglob(f"{recorded.address}.kv"))
    path.write_bytes(b"RAGC")
    assert len(verify(workspace).flaws) == 1
    assert workspace.catalog.collections.totals(collection).kv_variants == 4
    with Workspace(settings.model_copy(update={"dtype": "bfloat16"}), workspace.catalog) as other:
        prune(other, others=True)
    assert workspace.catalog.collections.totals(collection).kv_variants == 0


def test_shares(workspace: Workspace) -> None:
    fill(workspace, kv=True)
    fill(workspace, "cold", {"/cold.txt": ["Nothing is cached of this.", BOOKS["/books/rye.txt"][0]]})
    cold, warm = shares(workspace, take_census(workspace))
    assert (cold.collection.name, cold.chunks, cold.cached, cold.kv.entries) == ("cold", 2, 1, 1)
    assert (warm.collection.name, warm.chunks, warm.cached, warm.kv.entries) == ("default", 5, 5, 5)
    assert warm.kv.nbytes > cold.kv.nbytes > 0


def test_what_is_used_meanwhile_stays(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace, kv=True)
    lost = ingest_lost(workspace)

    def census_late(workspace: Workspace) -> Census:
        found = take_census(workspace)
        workspace.store.get(lost[0].key)
        workspace.store.pin(lost[0].key, False)  # the use is written down with it
        return found

    monkeypatch.setattr("app.maintenance.pruning.take_census", census_late)
    assert prune(workspace).unreferenced.entries == 1
    assert lost[0].key.digest in files(workspace)


def test_a_model_that_is_not_there_deletes_nothing(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace, kv=True)
    before = files(workspace)
    with Workspace(make_settings(tmp_path / "gone", tmp_path)) as other, pytest.raises(ModelError, match="no model"):
        prune(other, others=True)
    assert files(workspace) == before
