"""What the cache does by itself inside vLLM: its quality gate, what it foretells, brings near and computes anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from app import RagPipeline, Settings
from app.answering.divergence import FreeDivergence, divergence_of
from app.answering.quality import Level, NotMeasured
from app.cachecare.explaining import explain
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.linking import make_linker
from ragcache.loader import Block
from ragcache.plan_errors import FEWEST
from ragcache.store.findings import RAM
from ragcache.types import Segment
from tests.app.drifting import QUESTION, level_of, need_few, refine_nothing
from tests.app.filling import fill
from tests.tiny_folder import write_tiny_folder

SAMPLES = ("bakery.md", "lighthouse.md", "meerkats.md")
STEPS = 4


def decided(folder: Path, times: float) -> Path:
    """Its logits are so many times as far apart, so that some tokens are likely: those alone are told of."""
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] *= times
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def settings(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("gate")
    (root / "model").mkdir()
    folder = decided(write_tiny_folder(root / "model", smollm2, head_dim=32, hidden_size=128, spread=0.1), 2.0)
    return Settings(
        engine="vllm", model=str(folder), dtype="float32", vllm_kv_bytes=64_000_000, data_dir=root / "data",
        cache_dir=root / "cache", codec="raw", max_tokens=STEPS, gate=1.0, link_when="sooner",
    )  # fmt: skip


@pytest.fixture(scope="module")
def gated(settings: Settings) -> Iterator[RagPipeline]:
    """Each of its answers is measured."""
    with RagPipeline(settings) as pipeline:
        fill(pipeline, SAMPLES)
        pipeline.load()
        yield pipeline


def segments_of(pipeline: RagPipeline) -> list[Segment]:
    answering, stream = pipeline.answering, pipeline.stream(QUESTION.format(0))
    stream.close()
    pipeline.settle()
    chunks = [answering.template.chunk(one.text) for one in pipeline.retrieve(QUESTION.format(0))]
    return [answering.template.system(), *chunks, answering.template.question(QUESTION.format(0))]


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    need_few(monkeypatch)


def spoil(patch: pytest.MonkeyPatch) -> None:
    place = SpanRunner.place

    def spoilt(self: SpanRunner, block: Block, room: Any) -> None:
        place(self, replace(block, v=-50 * block.v), room)

    patch.setattr(SpanRunner, "place", spoilt)


def test_a_model_is_judged_at_its_start_over_a_store_of_its_own(gated: RagPipeline) -> None:
    found, engine = gated.gate.soundness, gated.models.language.engine
    assert found is not None and found.sound and found.kl is not None and found.kl > 0
    assert engine.store is gated.models.store


def test_it_measures_what_the_torch_engine_does(gated: RagPipeline, settings: Settings) -> None:
    segments = segments_of(gated)
    linkers = [make_linker(name) for name in ("naive", "fast", "first_tokens:k=4")]
    free = divergence_of(gated.answering.cache, STEPS, frozenset())
    assert isinstance(free, FreeDivergence)
    ours = free.of(segments, linkers)
    with RagPipeline(settings.model_copy(update={"engine": "torch"})) as pipeline:
        theirs = divergence_of(pipeline.answering.cache, STEPS, frozenset()).of(segments, linkers)
    assert len(ours) == len(theirs) == len(linkers)
    assert min(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):  # of a model whose words are all about as likely
        assert 0.3 * other < one <= other + 1e-6, (ours, theirs)


def test_neither_what_vllm_has_of_it_in_full_nor_of_a_link_is_measured(
    gated: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a drift would be none where vLLM's prefix cache has the prompt in full."""
    segments, cache = segments_of(gated), gated.answering.cache
    measured = divergence_of(cache, STEPS, frozenset())
    (sound,) = measured.of(segments, [make_linker("naive")])
    for linker in ("full", "naive"):
        list(cache.generate(segments, max_tokens=STEPS, linker=linker))
    assert measured.of(segments, [make_linker("naive")]) == [pytest.approx(sound, rel=1e-3)]
    spoil(monkeypatch)
    (spoilt,) = measured.of(segments, [make_linker("naive")])
    assert spoilt > 3 * sound


def test_who_waits_for_an_answer_or_reads_one_goes_first(gated: RagPipeline) -> None:
    segments, keeper = segments_of(gated), gated.models.language.keeper
    measured = divergence_of(gated.answering.cache, STEPS, frozenset(), disturbed=keeper.disturbed)
    with keeper.answering(), pytest.raises(NotMeasured, match="waited"):
        measured.of(segments, [make_linker("naive")])
    with gated.stream(QUESTION.format(0)) as stream:
        next(stream)
        with pytest.raises(NotMeasured, match="read"):
            measured.of(segments, [make_linker("naive")])
    gated.settle()
    assert len(measured.of(segments, [make_linker("naive")])) == 1


def test_what_was_not_linked_is_not_taken_for_near(gated: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = segments_of(gated)
    measured = divergence_of(gated.answering.cache, STEPS, frozenset())

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(SpanRunner, "place", broken)
    with pytest.raises(NotMeasured, match="out of memory"):
        measured.of(segments, [make_linker("naive")])


@pytest.mark.usefixtures("_few")
def test_a_drift_while_serving_is_detected_and_recovers(gated: RagPipeline, caplog: pytest.LogCaptureFixture) -> None:
    assert level_of(gated, 6)[0] is Level.ASKED
    (state,) = gated.gate.quality.states()
    assert state.measured >= 4 and state.kl is not None and 0 < state.kl < 0.15
    with pytest.MonkeyPatch.context() as patch:
        spoil(patch)
        refine_nothing(patch, gated)
        assert level_of(gated, 60, Level.OFF)[0] is Level.OFF
        answer = gated.ask(QUESTION.format(0))
        assert any("had drifted" in note for note in answer.notes)
        assert "too far from those without" in caplog.text
    assert level_of(gated, 60, Level.ASKED)[0] is Level.ASKED
    assert "near enough again" in caplog.text


def test_it_foretells_first_tokens_and_learns_how_far_off_it_was(gated: RagPipeline) -> None:
    told = explain(gated, QUESTION.format("next"))
    assert told.planned_s is not None and told.plain_s is not None
    assert 0 < told.planned_s < 60 and told.plain_s > 0
    assert all(one.compute_s is not None and one.compute_s > 0 for one in told.chunks)
    for number in range(FEWEST):
        report = gated.ask(QUESTION.format(100 + number), linker="auto").report
        assert report.planned_s is not None and report.planned_s > 0
    assert gated.models.language.plan_error is not None


def test_while_people_read_the_neighbours_come_into_memory(gated: RagPipeline) -> None:
    (ram,) = (tier for tier in gated.models.store.tiers() if tier.name == RAM)
    budget = ram.budget
    ram.fit(0)
    ram.fit(budget)
    before = gated.ahead.lifted
    gated.ask("How high above the sea is the light?", top_k=1)
    gated.settle()
    assert gated.ahead.lifted > before


def test_what_is_linked_out_of_its_context_is_computed_in_it(
    gated: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = gated.models.language.engine
    pace = engine._connector.scheduler.pace
    monkeypatch.setattr(pace, "_settings", replace(pace._settings, link_when="always"))
    refining = gated.models.cache.refining
    assert refining is not None
    before, overlaps = refining.captured, [0.0]
    question = "Who bakes, who designed the lighthouse, and what do meerkats eat?"
    for _ in range(20):  # as often as it takes: on a busy machine somebody may come amid a capture, which then ends
        if overlaps[-1] > 0.9:
            break
        engine.forget_prefixes()
        overlaps.append(min(chunk.overlap for chunk in gated.ask(question, top_k=6, linker="naive").report.chunks))
        gated.settle()
    assert refining.captured > before
    assert overlaps[1] < 0.5 and overlaps[-1] > 0.9, overlaps
