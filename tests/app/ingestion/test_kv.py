"""The KV of documents: there before they are, gone after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import CatalogError
from app.library import Library
from app.models import Models
from ragcache.errors import StoreError
from ragcache.types import VariantKey
from tests.app.ingestion.conftest import Run


def families(library: Library) -> set[str]:
    """On the disk, but for the System segment's."""
    collection = library.catalog.collections.get("default")
    assert collection.engine_fingerprint and collection.system_hash
    system = VariantKey(collection.engine_fingerprint, "", (), collection.system_hash).family
    return {path.parent.name for path in (library.settings.cache_dir / "kv").glob("*/*/*/*.kv")} - {system}


def wanted(library: Library) -> set[str]:
    collection = library.catalog.collections.get("default")
    assert collection.engine_fingerprint and collection.system_hash
    return {
        VariantKey(collection.engine_fingerprint, collection.system_hash, (), one).family
        for one in library.catalog.chunks.hashes()
    }


def test_every_chunk_has_kv(ingest: Run, library: Library, models: Models, docs: Path) -> None:
    (docs / "a.txt").write_text("\n\n".join(f"Entry {line}. " + "The fog came in again. " * 20 for line in range(9)))
    result = ingest(kv="eager")
    assert result.chunks > 4
    assert result.kv_variants == result.chunks
    collection = library.catalog.collections.get("default")
    assert collection.engine_fingerprint == models.language.engine.spec.fingerprint
    assert collection.system_hash == models.template.system().hash
    assert result.kv_bytes > 0
    assert families(library) == wanted(library)


def test_kv_goes_with_its_chunks_unless_others_have_them(ingest: Run, library: Library, docs: Path) -> None:
    (docs / "a.txt").write_text("Shared words.")
    (docs / "b.txt").write_text("Shared words.")
    (docs / "c.txt").write_text("Lonely words.")
    ingest(kv="eager")
    assert len(families(library)) == 2
    (docs / "a.txt").write_text("Other words.")
    (docs / "c.txt").unlink()
    result = ingest(kv="eager", prune=True)
    assert (result.replaced, result.pruned) == (1, 1)
    assert families(library) == wanted(library)
    assert len(families(library)) == 2
    (docs / "a.txt").write_bytes(b"")
    ingest()
    assert families(library) == wanted(library)
    assert len(families(library)) == 1


def test_kv_is_on_the_disk_before_its_document_is_in_sql(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "a.txt").write_text("Old words.")
    ingest(kv="eager")
    old = families(library)
    (docs / "a.txt").write_text("New words.")

    def fail(*_: object, **options: object) -> None:
        raise CatalogError("no room")

    monkeypatch.setattr(library.catalog.documents, "replace", fail)
    with pytest.raises(CatalogError, match="no room"):
        ingest(kv="eager")
    monkeypatch.undo()
    assert old == wanted(library) < families(library)
    assert library.catalog.runs.newest(library.catalog.collections.get("default"))[0].state == "failed"
    ingest(kv="eager")
    assert families(library) == wanted(library) != old


def test_another_system_prompt_is_told_once(ingest: Run, library: Library, docs: Path) -> None:
    (docs / "a.txt").write_text("Words.")
    assert ingest(kv="eager").notes == ()
    collection = library.catalog.collections.get("default")
    library.catalog.collections.set_engine(collection, collection.engine_fingerprint, "f" * 64)
    (docs / "b.txt").write_text("More words.")
    (note,) = ingest(kv="eager").notes
    assert note.endswith("`ragcache cache warm -c default` computes it")
    (docs / "c.txt").write_text("Even more words.")
    assert ingest(kv="eager").notes == ()


def test_documents_without_kv_are_told_when_kv_is_wanted(ingest: Run, docs: Path) -> None:
    (docs / "a.txt").write_text("Words.")
    assert ingest().notes == ()
    (note,) = ingest(kv="eager").notes
    assert "`ragcache cache warm -c default`" in note


def test_a_store_that_cannot_keep_it_stops_the_ingest(
    ingest: Run, library: Library, models: Models, docs: Path
) -> None:
    (docs / "a.txt").write_text("Words.")
    object.__setattr__(library.settings, "disk_bytes", 500)
    with pytest.raises(StoreError, match="does not fit the disk budget"):
        ingest(kv="eager")
    collection = library.catalog.collections.get("default")
    assert library.catalog.documents.all(collection) == []
    del models.store, models.cache
    object.__setattr__(library.settings, "disk_bytes", 0)
    result = ingest(kv="eager")
    assert (result.added, result.kv_variants) == (1, 0)
    assert any("RAGCACHE_DISK_BYTES is 0" in note for note in result.notes)


def test_an_eviction_is_told(ingest: Run, library: Library, models: Models, docs: Path) -> None:
    (docs / "a.txt").write_text("Words.")
    ingest(kv="eager")
    nbytes = sum(path.stat().st_size for path in library.settings.cache_dir.rglob("*.kv"))
    del models.store, models.cache
    object.__setattr__(library.settings, "disk_bytes", nbytes + 1)
    for name in "bcdef":
        (docs / f"{name}.txt").write_text(f"Words of {name}.")
    assert any("raise RAGCACHE_DISK_BYTES" in note for note in ingest(kv="eager").notes)
