"""A text that no splitter or embedder can take costs its own file, and no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from app.ingestion import IngestOptions, IngestResult
from app.ingestion.draft import Check
from app.ingestion.ingest import Ingest
from app.library import Library
from app.models import Models
from app.models.loading import load_embedder
from app.settings import Settings
from retriever import RetrieverError, Vectors
from retriever.embedder import Embedder
from splitter import SplitterError
from splitter.base import Piece, Splitter


class Fragile(Splitter):
    """One that a word breaks in the ways that splitters break in."""

    def __init__(self, whole: Splitter):
        self._whole = whole

    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        for word, error in {"deep": RecursionError(), "huge": MemoryError(), "odd": SplitterError("no pieces")}.items():
            if word in text:
                raise error
        return self._whole.split(text, kind)


class FragileEmbedder(Embedder):
    works = True

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not self.works:
            raise RetrieverError("no model")
        if any("poison" in text for text in texts):
            raise RuntimeError("the model chokes")
        return super().embed(texts)


class FragileModels(Models):
    def splitter(self, name: str, limits: Mapping[str, int], check: Check | None = None) -> Splitter:
        return Fragile(super().splitter(name, limits, check))


@pytest.fixture
def models(settings: Settings) -> FragileModels:
    models = FragileModels(settings)
    models.embedder = load_embedder(settings, FragileEmbedder)
    return models


def ingest(library: Library, models: Models, docs: Path, dry_run: bool = False) -> IngestResult:
    options = IngestOptions(kv="on-use", workers=1, dry_run=dry_run)
    return Ingest(library, models, library.collection_or_new("default"), options).run([docs])


def sources(library: Library) -> set[str]:
    return {Path(source).name for source in library.catalog.documents.states(library.collection())}


def test_what_breaks_a_splitter_costs_one_file(library: Library, models: Models, docs: Path) -> None:
    for name in ("a sound", "b deep", "c huge", "d odd", "e sound"):
        (docs / f"{name}.txt").write_text(f"A text that is {name}.")
    rehearsed, result = ingest(library, models, docs, dry_run=True), ingest(library, models, docs)
    assert (rehearsed.added, rehearsed.failed) == (2, result.failed)
    assert result.added == 2
    assert [Path(failure.source).name for failure in result.failed] == ["b deep.txt", "c huge.txt", "d odd.txt"]
    assert "RecursionError" in result.failed[0].reason and "MemoryError" in result.failed[1].reason
    assert "SplitterError: no pieces" in result.failed[2].reason
    assert sources(library) == {"a sound.txt", "e sound.txt"}


def test_what_breaks_an_embedder_costs_one_file_of_a_batch(library: Library, models: Models, docs: Path) -> None:
    for name in ("a sound", "b poison", "c sound"):
        (docs / f"{name}.txt").write_text(f"A text that is {name}.")
    result = ingest(library, models, docs)
    assert (result.added, [Path(failure.source).name for failure in result.failed]) == (2, ["b poison.txt"])
    assert "RuntimeError: the model chokes" in result.failed[0].reason
    assert "older version" not in result.failed[0].reason
    assert sources(library) == {"a sound.txt", "c sound.txt"}


@pytest.mark.slow
def test_the_older_version_of_a_file_that_breaks_them_stays(library: Library, models: Models, docs: Path) -> None:
    path = docs / "a.txt"
    path.write_text("A sound text.")
    ingest(library, models, docs)
    for word in ("deep", "poison"):
        path.write_text(f"A text that is {word}.")
        (failure,) = ingest(library, models, docs).failed
        assert failure.reason.endswith("its older version stays")
        (state,) = library.catalog.documents.states(library.collection()).values()
        assert state.state == "ready"
    path.write_text("Sound again.")
    assert ingest(library, models, docs).replaced == 1


def test_an_embedder_that_does_not_work_at_all_ends_the_ingest(library: Library, models: Models, docs: Path) -> None:
    (docs / "a.txt").write_text("A sound text.")
    models.embedder.works = False
    with pytest.raises(RetrieverError, match="no model"):
        ingest(library, models, docs)
