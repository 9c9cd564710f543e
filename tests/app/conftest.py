from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.library import Library
from app.library.catalog import open_catalog
from app.models import Models
from app.models.chat_template import load_tokenizer
from app.models.loading import TorchModel
from app.prompt import PromptTemplate
from tests.app.filling import fill
from tests.tiny_folder import write_tiny_folder


@pytest.fixture(scope="session")
def tiny_folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("tiny"), smollm2)


@pytest.fixture(scope="session")
def template(smollm2: Path) -> PromptTemplate:
    return PromptTemplate(load_tokenizer(smollm2), "Answer from the passages.")


@pytest.fixture(scope="session")
def sampled(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a collection that holds all samples with their KV, by the small random model."""
    folder = tmp_path_factory.mktemp("sampled")
    settings = Settings(
        model=str(tiny_folder), data_dir=folder / "data", cache_dir=folder / "cache", linker="query", max_tokens=12
    )
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ("bakery.md", "lighthouse.md", "meerkats.md"))
    return settings


@pytest.fixture(scope="session")
def pipeline(sampled: Settings) -> Iterator[RagPipeline]:
    """Shared, so a test leaves the collection as it is; conversations do no harm."""
    with RagPipeline(sampled) as pipeline:
        yield pipeline
        pipeline.library.catalog.check_integrity()


@pytest.fixture
def models(settings: Settings, parts: TorchModel) -> Iterator[Models]:
    """Of a folder's own `settings`, with the model that it has loaded as its `parts`."""
    with Models(settings, parts) as models:
        yield models
        if store := Models.store.peek(models):
            store.check_integrity()


@pytest.fixture
def library(settings: Settings, models: Models) -> Iterator[Library]:
    with open_catalog(settings) as catalog:
        yield Library(settings, catalog, models)
        catalog.check_integrity()
