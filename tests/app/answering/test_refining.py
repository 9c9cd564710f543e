"""A pipeline that goes on computes chunks in the contexts of its prompts; one that asks once does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from tests.app.filling import fill
from tests.tiny_folder import write_tiny_folder

QUESTION = "Who bakes, who designed the lighthouse, and what do meerkats eat?"


@pytest.fixture
def settings(smollm2: Path, tmp_path: Path) -> Settings:
    folder = write_tiny_folder(tmp_path / "model", smollm2)
    return Settings(
        model=str(folder), data_dir=tmp_path / "data", cache_dir=tmp_path, max_tokens=4, link_when="always", top_k=6,
        linker="naive", gate=0.0, anticipate=0,
    )  # fmt: skip


@pytest.fixture
def pipeline(settings: Settings) -> Iterator[RagPipeline]:
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ("bakery.md", "lighthouse.md", "meerkats.md"))
        yield pipeline


def overlaps(pipeline: RagPipeline, system: str | None = None) -> list[float]:
    chunks = pipeline.ask(QUESTION, system=system).report.chunks
    pipeline.settle()
    return [chunk.overlap for chunk in chunks]


def test_prompts_of_a_pipeline_that_goes_on_fit_better(pipeline: RagPipeline) -> None:
    pipeline.load()
    first, second = overlaps(pipeline), overlaps(pipeline)
    assert min(first) < 0.5
    assert min(overlaps(pipeline)) > 0.9, (first, second)


def test_a_program_that_asks_once_computes_nothing_more(pipeline: RagPipeline) -> None:
    first = overlaps(pipeline)
    assert [overlaps(pipeline) for _ in range(3)][-1] == first


@pytest.mark.parametrize("changed", [{"refine": 0}, {"kv": "off"}])
def test_where_it_is_off_or_nothing_is_kept(
    settings: Settings, pipeline: RagPipeline, changed: dict[str, object]
) -> None:
    with RagPipeline(settings.model_copy(update=changed)) as other:
        other.load()
        first = overlaps(other)
        assert [overlaps(other) for _ in range(3)][-1] == first
