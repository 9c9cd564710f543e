"""Texts that documents share with context caches, which are made and end while an ingest runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from app.chat.contexts import ContextRequest, Contexts
from app.ingestion.writer import Writer
from app.library import Library
from app.models import Models
from app.settings import Settings
from ragcache.store.folder import CacheFolder
from tests.app.ingestion.conftest import Run
from tests.app.ingestion.test_order import chunk_of, contexts, standings

TEXT, OTHER = "The tower was built in 1846.", "Rye bread takes three days."


@pytest.fixture
def shared(ingest: Run, library: Library, docs: Path) -> str:
    """The token hash of a text that a document has, which the next ingest prunes behind one that it replaces."""
    (docs / "a.txt").write_text(TEXT)
    (docs / "b.txt").write_text(OTHER)
    ingest(kv="eager")
    first, _ = standings(library)
    (docs / "a.txt").unlink()
    (docs / "b.txt").write_text("Something else entirely, about boats.")
    return chunk_of(library, first)


def before_pruning(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    prune = Writer.prune

    def late(writer: Writer, document_ids: Sequence[int]) -> int:
        act()
        return prune(writer, document_ids)

    monkeypatch.setattr(Writer, "prune", late)


def test_a_text_whose_cache_ends_while_an_ingest_runs_goes(
    ingest: Run, library: Library, models: Models, settings: Settings, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = Contexts(library, models)
    made = caches.create(ContextRequest([TEXT]))
    before_pruning(monkeypatch, lambda: caches.expire(made.id))
    assert ingest(kv="eager", prune=True).pruned == 1
    assert shared not in contexts(settings)
    assert library.catalog.orphans.of(library.catalog.collections.get("default")) == (set(), set())


def test_a_text_whose_cache_is_made_while_an_ingest_runs_stays(
    ingest: Run, library: Library, models: Models, settings: Settings, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned as it is."""
    caches = Contexts(library, models)
    before_pruning(monkeypatch, lambda: caches.create(ContextRequest([TEXT], pinned=True)))
    assert ingest(kv="eager", prune=True).pruned == 1
    assert shared in contexts(settings)
    folder = CacheFolder(settings.kv_folder)
    assert shared in {key.chunk for one in folder.items() if one.pinned and (key := folder.key(one))}
