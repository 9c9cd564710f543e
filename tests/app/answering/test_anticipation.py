"""While people read, what stands beside the chunks of the answer comes into memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from ragcache.store.findings import RAM
from tests.app.filling import fill
from tests.tiny_folder import write_tiny_folder

QUESTION = "How high above the sea is the light?"
ASKED = 3  # entries: System, the chunk that was found, and that again as it stands behind System alone
Reopen = Callable[[int], RagPipeline]


@pytest.fixture
def reopened(smollm2: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Reopen:
    """A later start over the same documents: all KV is on the disk."""
    folder = write_tiny_folder(tmp_path / "model", smollm2)
    settings = Settings(
        model=str(folder), data_dir=tmp_path / "data", cache_dir=tmp_path, max_tokens=4, link_when="always", top_k=1
    )
    with RagPipeline(settings) as first:
        fill(first, ("lighthouse.md",))

    def reopen(beside: int) -> RagPipeline:
        pipeline = RagPipeline(settings.model_copy(update={"anticipate": beside}))
        request.addfinalizer(pipeline.close)
        return pipeline

    return reopen


def in_memory(pipeline: RagPipeline) -> int:
    pipeline.settle()
    return next(one.entries for one in pipeline.models.cache.store.stats() if one.tier == RAM)


def tiers(pipeline: RagPipeline, top_k: int) -> dict[str, str]:
    """Of the chunks of the next answer."""
    return {one.chunk: one.tier for one in pipeline.ask(QUESTION, top_k=top_k).report.chunks}


@pytest.mark.parametrize("beside", [0, 1, 2])
def test_the_neighbours_come(reopened: Reopen, beside: int) -> None:
    pipeline = reopened(beside)
    pipeline.load()
    (found,) = pipeline.ask(QUESTION).citations
    held = in_memory(pipeline)
    places = [one for one in range(found.ordinal - beside, found.ordinal + beside + 1) if 0 <= one <= 6]
    assert pipeline.ahead.lifted == len(places) - 1 == held - ASKED
    every = tiers(pipeline, 7)
    assert list(every.values()) == ["ram" if place in places else "disk" for place in range(7)]


def test_a_program_that_asks_once_brings_nothing(reopened: Reopen) -> None:
    pipeline = reopened(2)
    pipeline.ask(QUESTION)
    assert in_memory(pipeline) == ASKED and pipeline.ahead.lifted == 0
