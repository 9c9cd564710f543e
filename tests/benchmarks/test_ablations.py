"""What stands for Cache-Craft without one of its parts, and the figures' plumbing, on a small random model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.models.loading import TorchModel
from benchmarks.ablations import AblationsBenchOptions
from benchmarks.ablations.cases import cases_of
from benchmarks.ablations.linkers import WithoutOverlap, WithoutRanking
from benchmarks.ablations.measurement import RepairMeter, run
from benchmarks.ablations.positions import OldPositions, captured_at
from benchmarks.caches import memory_cache
from benchmarks.data import read_dataset
from benchmarks.quality.prompts import Prompt
from ragcache.cache import ChunkCache
from ragcache.engine import PromptRequest
from ragcache.engine.torch.generation import prefill
from ragcache.errors import ConfigError
from ragcache.linking.base import LinkedPrompt, Linker, Positions
from ragcache.linking.baselines import Naive
from ragcache.linking.cci import ContextImpact
from ragcache.planning import plan_prompt
from ragcache.types import Chunk, Segment
from tests.benchmarks.conftest import letters

TEXTS = (
    "Apples grow in the orchard, and they are ripe in autumn.",
    "Pears grow in the garden, behind the house that is old.",
    "Plums grow in the valley, where nobody looks for them.",
    "Quinces grow in the yard.",
    "Medlars grow nowhere at all.",
)


@pytest.fixture
def chunks(parts: TorchModel) -> list[Chunk]:
    return [parts.template.chunk(text) for text in TEXTS]


@pytest.fixture
def filled(parts: TorchModel, chunks: list[Chunk]) -> ChunkCache:
    cache = memory_cache(parts, "document")
    list(cache.ingest(parts.template.system(), chunks))  # it computes as it is read
    return cache


def prompt(parts: TorchModel, *chunks: Chunk) -> list[Segment]:
    return [parts.template.system(), *chunks, parts.template.question("Where do they grow?")]


class Watched(Linker):
    """Keeps what another linker selects."""

    name = "watched"

    def __init__(self, linker: Linker):
        self._linker = linker
        self.counts: list[int] = []  # by chunk
        self.selected: Positions = np.empty(0, dtype=np.int64)

    def select(self, prompt: LinkedPrompt) -> Positions:
        self.selected = self._linker.select(prompt)
        self.counts = [int(((self.selected >= one.start) & (self.selected < one.end)).sum()) for one in prompt.chunks]
        return self.selected


def selected(parts: TorchModel, cache: ChunkCache, segments: Sequence[Segment], linker: Linker) -> Watched:
    watched = Watched(linker)
    prefill(parts.engine, PromptRequest(segments, watched, 1), replace(cache.source, rates=None))
    return watched


def test_without_beta_more_is_repaired_where_some_of_the_context_is_there(
    parts: TorchModel, filled: ChunkCache, chunks: list[Chunk]
) -> None:
    segments = prompt(parts, chunks[0], chunks[2], chunks[4])  # of two chunks before the third, it saw one
    whole = selected(parts, filled, segments, ContextImpact()).counts
    without = selected(parts, filled, segments, WithoutOverlap()).counts
    assert all(more >= some for more, some in zip(without, whole, strict=True))
    assert sum(without) > sum(whole) > 0


def test_where_nothing_of_the_context_is_there_beta_has_no_say(
    parts: TorchModel, filled: ChunkCache, chunks: list[Chunk]
) -> None:
    segments = prompt(parts, chunks[4], chunks[0])
    whole = selected(parts, filled, segments, ContextImpact()).counts
    assert selected(parts, filled, segments, WithoutOverlap()).counts == whole
    assert sum(whole) > 0


@pytest.mark.parametrize("settings", [{}, {"alpha": 0.5}, {"ratio": 0.3}])
def test_the_lot_takes_as_many_tokens_of_each_chunk(
    settings: dict[str, float], parts: TorchModel, filled: ChunkCache, chunks: list[Chunk]
) -> None:
    segments = prompt(parts, chunks[3], chunks[1], chunks[0], chunks[4])
    ranked = selected(parts, filled, segments, ContextImpact(**settings))
    lots = [selected(parts, filled, segments, WithoutRanking(**settings, seed=seed)) for seed in range(2)]
    assert all(lot.counts == ranked.counts for lot in lots)
    assert len({tuple(one.selected) for one in (ranked, *lots)}) == 3, "three choices of as many tokens"


def test_old_positions_are_the_new_ones_where_a_chunk_stands_where_it_was_captured(
    parts: TorchModel, filled: ChunkCache, chunks: list[Chunk]
) -> None:
    """The second chunk saw the first; so did the third, which stands elsewhere without the second."""
    for order, same in (([0, 1], True), ([0, 2], False)):
        segments = prompt(parts, *(chunks[place] for place in order))
        old = replace(filled.source, loader=OldPositions(parts.engine.decoder.rope))
        turned, left = (
            prefill(parts.engine, PromptRequest(segments, Naive(), 1), source) for source in (filled.source, old)
        )
        end = turned.plan.question
        assert torch.equal(turned.buffer.k[:, :, :end], left.buffer.k[:, :, :end]) is same
        assert torch.equal(turned.buffer.v[:, :, :end], left.buffer.v[:, :, :end]), "V has no position"


def test_a_chunk_was_captured_behind_system_and_its_context(
    parts: TorchModel, filled: ChunkCache, chunks: list[Chunk]
) -> None:
    plan = plan_prompt(prompt(parts, chunks[4]), parts.engine.spec.fingerprint, filled.store)
    (found,) = plan.chunks[0].candidates
    behind = len(parts.template.system()) + sum(map(len, chunks[1:4]))  # of the four before it, it saw three
    assert captured_at(filled.store, found.info.key) == behind


def asked(**changed: Any) -> AblationsBenchOptions:
    chosen: dict[str, Any] = {
        "limit": 3, "alphas": (0.5, 2.0), "counts": (2, 4), "sizes": (16, 32), "top_k": 3, "chunk_tokens": 24,
        "order": "best", "steps": 3, "focus": 1, "data": Path(),
    }  # fmt: skip
    return AblationsBenchOptions(**{**chosen, **changed})


@pytest.mark.slow
@pytest.mark.parametrize("form", ["given_file", "corpora_folder"])
def test_every_case_has_a_row_of_the_same_prompts(
    form: str, parts: TorchModel, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options, out = asked(), tmp_path / "out.json"
    rows = run(parts, letters, read_dataset(request.getfixturevalue(form)), options, out)
    told = json.loads(out.read_text())
    assert told["rows"] == rows
    assert [(row["ablation"], row["case"]) for row in rows] == [(one.ablation, one.name) for one in cases_of(options)]
    assert {row["prompts"] for row in rows} == {3}
    assert len({tuple(sorted(one["prompts"])) for one in told["answers"]}) == 1
    by_case = {(row["ablation"], row["case"], row["top_k"], row["chunk_tokens"]): row for row in rows}
    assert len(by_case) == len(rows), "no two rows have one name"
    for row in rows:
        assert row["kl_low"] <= row["kl"] <= row["kl_high"]
        assert (row["ratio"] is None) is (row["against"] is None)
        if row["against"] is not None:
            other = by_case[row["ablation"], row["against"], row["top_k"], row["chunk_tokens"]]
            assert row["ratio"] == pytest.approx(row["kl"] / other["kl"])
            assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    shares = {row["case"]: row["repaired_share"] for row in rows if row["ablation"] == "components"}
    assert shares["naive"] == 0
    assert shares["without CCI, focus"] == shares["without focus"] <= shares["without beta, focus"]
    assert shares["whole"] <= shares["without focus"], "what focus ends is not counted"


@pytest.mark.slow
def test_what_is_the_same_case_has_the_same_figures(parts: TorchModel, corpora_folder: Path, tmp_path: Path) -> None:
    options = asked(ablations=("count", "positions"), counts=(3,))
    rows = run(parts, letters, read_dataset(corpora_folder), options, tmp_path / "out.json")
    kl = {(row["ablation"], row["case"]): row["kl"] for row in rows}
    assert kl["count", "naive"] == kl["positions", "turned, as placed"]
    assert kl["count", "cci"] == kl["positions", "turned, repaired"] > 0
    assert kl["positions", "old, as placed"] != kl["positions", "turned, as placed"]


def test_a_prompt_that_is_not_cached_is_no_measurement(parts: TorchModel, chunks: list[Chunk]) -> None:
    segments = prompt(parts, *chunks[:2])
    asked_of = Prompt("one", (), tuple(chunks[:2]), tuple(segments))
    cases = [case for case in cases_of(asked(top_k=2)) if case.ablation == "components"]
    with pytest.raises(AssertionError, match="captured before"):
        RepairMeter(parts, memory_cache(parts, "document"), 2).of({2: asked_of}, cases)


def test_only_what_is_asked_for_is_measured() -> None:
    cases = cases_of(asked(ablations=("size",)))
    assert {(case.ablation, case.chunk_tokens, case.top_k) for case in cases} == {("size", 16, 3), ("size", 32, 3)}


def test_a_ratio_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ratio=1\.5"):
        cases_of(asked(ratio=1.5))
