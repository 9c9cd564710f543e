from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from app.ingestion import IngestOptions, IngestResult
from app.ingestion.ingest import Ingest
from app.ingestion.queue import IngestQueue
from app.library import Library
from app.library.catalog.records import Collection
from app.models import Models
from app.models.folders import resolve_embedder
from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings, load_settings
from tests.app.ingestion.models import write_tiny_embedder
from tests.app.ingestion.sending import Queues

Run = Callable[..., IngestResult]
WORDS = {name: f"Of the {name} there is much to be told. " * 60 for name in ("harbour", "bakery", "lighthouse")}


@pytest.fixture(scope="session")
def tiny_embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_embedder(tmp_path_factory.mktemp("embedder"), resolve_embedder("bundled:minilm"))


@pytest.fixture
def settings(tiny_folder: Path, tiny_embedder: Path, tmp_path: Path) -> Settings:
    return load_settings(
        None, model=str(tiny_folder), embedder=str(tiny_embedder), dtype="float32", device="cpu",
        data_dir=tmp_path / "data", cache_dir=tmp_path / "cache",
    )  # fmt: skip


@pytest.fixture(scope="session")
def parts(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TorchModel:
    """A model that is loaded once for all of these tests."""
    folder = tmp_path_factory.mktemp("parts")
    return load_torch_model(
        load_settings(None, model=str(tiny_folder), dtype="float32", device="cpu", cache_dir=folder)
    )


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture
def ingest(library: Library, models: Models, docs: Path) -> Run:
    """Of the folder `docs`, or of other paths, without KV unless it is asked for."""

    def run(*paths: Path, **options: object) -> IngestResult:
        values = {"kv": "on-use", "workers": 1} | options
        collection = library.collection_or_new("default")
        return Ingest(library, models, collection, IngestOptions(**values)).run(paths or [docs])

    return run


@pytest.fixture
def books(docs: Path) -> Path:
    for name, text in WORDS.items():
        (docs / f"{name}.txt").write_text("\n\n".join(f"{text} In year {year}." for year in range(3)))
    return docs


def files(settings: Settings) -> list[Path]:
    return sorted(settings.kv_folder.glob("*/*/*/*.kv"))


def nbytes(settings: Settings) -> int:
    return sum(path.stat().st_size for path in files(settings))


def budget(library: Library, models: Models, disk_bytes: int) -> None:
    """From now on, for whoever opens a store."""
    del models.store
    object.__setattr__(library.settings, "disk_bytes", disk_bytes)


@pytest.fixture
def of_one(ingest: Run, library: Library, books: Path) -> int:
    """Bytes of the KV of a book; the first is in."""
    assert ingest(books / "bakery.txt", kv="auto").on_use == 0
    return nbytes(library.settings)


@pytest.fixture
def queues(library: Library, models: Models) -> Iterator[Queues]:
    with ExitStack() as stack:

        def make() -> IngestQueue:
            return stack.enter_context(closing(IngestQueue(library, models)))

        yield make


@pytest.fixture
def queue(queues: Queues) -> IngestQueue:
    made = queues()
    made.start()
    return made


@pytest.fixture
def collection(library: Library) -> Collection:
    return library.collection_or_new("shelf")
