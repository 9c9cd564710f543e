from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from app.cachecare import Census, FileTally, prune, shares, take_census, verify
from app.cli.cache import prune as prune_command
from app.errors import CatalogError
from app.library import Library
from app.library.inspection import summaries
from app.models import Models
from app.settings import Settings
from ragcache.errors import ModelError
from ragcache.prefix import addresses as prefixes
from ragcache.store import frame
from ragcache.types import Text, Variant
from tests.app.library.shelves import BOOKS, addresses, files, fill, make_collection, make_settings

LOST = ["A page that was torn out.", "And the one behind it."]


def ingest_lost(models: Models, texts: list[str] | None = None) -> list[Variant]:
    """KV without chunks, as a killed ingest leaves it."""
    segments = [models.template.chunk(text) for text in texts or LOST]
    return list(models.cache.ingest(models.template.system(), segments))


def test_what_no_chunk_needs_goes(library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    kept = files(library)
    lost = ingest_lost(models)
    assert files(library) - kept == {variant.key.digest for variant in lost}
    would = prune(library, models, dry=True)
    assert (would.unreferenced.entries, would.dry) == (2, True)
    assert files(library) > kept, "a dry run leaves all"
    done = prune(library, models)
    assert (done.unreferenced, done.other) == (would.unreferenced, FileTally())
    assert files(library) == kept
    models.store.check_integrity()
    assert prune(library, models).unreferenced == FileTally()


def test_a_cache_that_is_not_there_is_not_made(library: Library, models: Models) -> None:
    assert prune(library, models).unreferenced == FileTally()
    assert verify(library, models).entries == 0
    assert take_census(library, models).live == []
    assert not library.settings.cache_dir.exists()


@pytest.mark.slow
def test_other_engines_and_systems_go_when_asked(library: Library, models: Models, settings: Settings) -> None:
    fill(library, models, kv=True)
    kept = files(library)
    changed = settings.model_copy(update={"system_prompt": "Answer in verse."})
    with Models(changed) as other:
        ingest_lost(other, list(BOOKS["/books/rye.txt"]))
        ingest_lost(other)
    bfloat = settings.model_copy(update={"dtype": "bfloat16"})
    with Models(bfloat) as another:
        ingest_lost(another)
    census = take_census(library, models)
    assert (len(census.live), len(census.dead), len(census.other)) == (6, 2, 3 + 3)
    first = prune(library, models)
    assert (first.unreferenced.entries, first.other) == (2, FileTally())
    assert prune(library, models, others=True).other.entries == 6
    assert files(library) == kept


def test_a_prefix_goes_with_a_text_that_it_saw(library: Library, models: Models) -> None:
    """As a killed deletion leaves it; that of others stays, unless all of them are to go."""
    fill(library, models, kv=True)
    system, spec = models.template.system(), models.language.engine.spec
    made = []
    for text in (LOST[0], BOOKS["/books/rye.txt"][0]):
        front = [system, Text((5,) * 130), models.template.chunk(text), Text((7,) * 130)]
        block = list(prefixes(front, spec.fingerprint))[-1]
        zeros = torch.zeros((spec.layers, spec.kv_heads, len(block.ids), spec.head_dim))
        models.store.put(block.variant(zeros, zeros))
        made.append(block.key.digest)
    assert prune(library, models).unreferenced.entries == 1
    assert set(made) & files(library) == {made[1]}
    assert prune(library, models, others=True).other.entries == 1
    assert not set(made) & files(library)


def test_of_texts_that_are_gone_nothing_stays_behind_whatever_system(
    library: Library, models: Models, settings: Settings
) -> None:
    """Neither their own KV nor what had seen them, as a killed deletion leaves it; what is of other texts stays."""
    fill(library, models, kv=True)
    first, second = BOOKS["/books/rye.txt"]
    with Models(settings.model_copy(update={"system_prompt": "Answer in verse."})) as other:
        ingest_lost(other, [first, second])
        kept = files(library)
        lost = ingest_lost(other, [LOST[0], second])
    assert files(library) - kept == {variant.key.digest for variant in lost}
    would = prune(library, models, dry=True)
    assert (would.unreferenced.entries, would.other) == (2, FileTally())
    assert prune(library, models, dry=True, others=True).other.entries == 3, "a System segment and two texts"
    done = prune(library, models)
    assert (done.unreferenced, done.other) == (would.unreferenced, FileTally())
    assert files(library) == kept


def test_a_file_that_cannot_be_read_stays_and_keeps_no_other(
    library: Library, models: Models, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a lost text's own KV nor what had seen it."""
    fill(library, models, kv=True)
    with Models(settings.model_copy(update={"system_prompt": "Answer in verse."})) as other:
        lost = [*ingest_lost(other), *ingest_lost(other, [LOST[0], BOOKS["/books/rye.txt"][0]])]
    gone, bad = {one.key.digest for one in lost}, {lost[0].key.digest, lost[-1].key.digest}

    def failing(path: Path) -> Any:
        if path.stem in bad:
            raise OSError(5, "the disk fails", str(path))
        return frame.read_fields(path)

    def failing_to_tell(path: Path) -> Any:
        failing(path)
        return frame.read_seen(path)

    monkeypatch.setattr("ragcache.store.folder.read_fields", failing)
    monkeypatch.setattr("app.cachecare.read_seen", failing_to_tell)
    prune(library, models)
    assert files(library) & gone == bad
    monkeypatch.undo()
    prune(library, models)
    assert not files(library) & gone


def test_the_command_tells_what_catalogs_cost_each_other() -> None:
    told = " ".join(prune_command.__doc__.split()) if prune_command.__doc__ else ""
    assert "Catalogs that share a cache folder lose KV to each other by it" in told


def test_what_saw_a_text_under_the_hash_of_another_tokenizer_stays(
    library: Library, models: Models, settings: Settings
) -> None:
    collection = fill(library, models, kv=True)
    with Models(settings.model_copy(update={"system_prompt": "Answer in verse."})) as other:
        ingest_lost(other, list(BOOKS["/books/rye.txt"]))
    kept = files(library)
    documents = library.catalog.documents.all(collection)
    chunks = [chunk for document in documents for chunk in library.catalog.chunks.of_document(document.id)]
    library.catalog.chunks.retokenize(collection, [(chunk.id, 3, f"{chunk.id:064x}") for chunk in chunks])
    assert prune(library, models).unreferenced == FileTally()
    assert files(library) == kept


def test_nothing_goes_while_an_ingest_runs(library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    other = make_collection(library, "other")
    lost = {variant.key.digest for variant in ingest_lost(models)}
    with library.catalog.alone(other):
        with pytest.raises(CatalogError, match="collection 'other': try again when it is done"):
            prune(library, models)
        assert prune(library, models, dry=True).unreferenced.entries == 2
    assert lost < files(library)


def test_what_is_written_meanwhile_stays(library: Library, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ingest into a collection that is made after the locks were taken."""
    fill(library, models, kv=True)
    gone = {variant.key.digest for variant in ingest_lost(models)}
    new: set[str] = set()

    def census_late(library: Library, models: Models) -> Census:
        new.update(variant.key.digest for variant in ingest_lost(models, ["Of a new collection."]))
        return take_census(library, models)

    monkeypatch.setattr("app.cachecare.take_census", census_late)
    assert prune(library, models).unreferenced.entries == len(gone)
    assert new < files(library)
    assert not gone & files(library)


def test_pinned_kv_stays(library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    lost = ingest_lost(models)
    models.store.pin(lost[0].key)
    assert prune(library, models, dry=True).unreferenced.entries == 1
    assert prune(library, models).unreferenced.entries == 1
    assert lost[0].key.digest in files(library)


def test_kv_under_hashes_of_another_tokenizer_is_live(library: Library, models: Models) -> None:
    """SQL's hashes are those of the ingest; an answer uses those of the tokenizer of today."""
    collection = fill(library, models, kv=True)
    kept = files(library)
    documents = library.catalog.documents.all(collection)
    chunks = [chunk for document in documents for chunk in library.catalog.chunks.of_document(document.id)]
    changes = [(chunk.id, 3, f"{chunk.id:064x}") for chunk in chunks]
    library.catalog.chunks.retokenize(collection, changes)
    ingest_lost(models)
    assert prune(library, models).unreferenced.entries == 2
    assert files(library) == kept


def test_leftovers_of_killed_processes_and_old_bad_files_go(library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    folder = library.settings.cache_dir / "kv"
    victim = next(folder.glob("*/*/*/*.kv"))
    victim.write_bytes(victim.read_bytes()[:-1])
    (folder / "writing" / "x.1.abc.tmp").write_bytes(b"half")
    found = verify(library, models)
    assert (found.entries, [Path(flaw.where).name for flaw in found.flaws]) == (6, [victim.name])
    assert victim.name in found.flaws[0].reason
    assert verify(library, models).flaws == ()
    pruned = prune(library, models)
    assert (pruned.temporaries, pruned.quarantined) == (1, 0)
    assert prune(library, models, dry=True, quarantine_age=timedelta(0)).quarantined == 1
    assert prune(library, models, quarantine_age=timedelta(0)).quarantined == 1
    assert list((folder / "quarantine").iterdir()) == []


def test_flawed_and_pruned_kv_leaves_the_totals(library: Library, models: Models, settings: Settings) -> None:
    collection = fill(library, models, kv=True)
    models.store.verify()
    assert summaries(library, models)[0].kv_variants == 5
    path = next((settings.cache_dir / "kv").rglob(f"{addresses(library, collection)[0]}.kv"))
    path.write_bytes(b"RAGC")
    assert len(verify(library, models).flaws) == 1
    assert summaries(library, models)[0].kv_variants == 4
    prune(library, Models(settings.model_copy(update={"dtype": "bfloat16"})), others=True)
    assert summaries(library, models)[0].kv_variants == 0


def test_shares(library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    fill(library, models, "cold", {"/cold.txt": ["Nothing is cached of this.", BOOKS["/books/rye.txt"][0]]})
    cold, warm = shares(library, models, take_census(library, models).live)
    assert (cold.collection.name, cold.chunks, cold.cached, cold.kv.entries) == ("cold", 2, 1, 1)
    assert (warm.collection.name, warm.chunks, warm.cached, warm.kv.entries) == ("default", 5, 5, 5)
    assert warm.kv.nbytes > cold.kv.nbytes > 0


def test_what_is_used_meanwhile_stays(library: Library, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(library, models, kv=True)
    lost = ingest_lost(models)

    def census_late(library: Library, models: Models) -> Census:
        found = take_census(library, models)
        models.store.get(lost[0].key)
        models.store.pin(lost[0].key, False)  # the use is written down with it
        return found

    monkeypatch.setattr("app.cachecare.take_census", census_late)
    assert prune(library, models).unreferenced.entries == 1
    assert lost[0].key.digest in files(library)


def test_a_model_that_is_not_there_deletes_nothing(library: Library, models: Models, tmp_path: Path) -> None:
    fill(library, models, kv=True)
    before = files(library)
    with pytest.raises(ModelError, match="no model"):
        prune(library, Models(make_settings(tmp_path / "gone", tmp_path)), others=True)
    assert files(library) == before
