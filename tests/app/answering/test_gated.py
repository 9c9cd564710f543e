"""A drift that is put into the caches while they serve is seen, acted upon, and taken back when it has gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.answering import divergence
from app.answering.gated import STEPS
from app.answering.quality import Level
from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.linking.baselines import Full
from ragcache.loader import Block
from tests.app.drifting import QUESTION, level_of, need_few, refine_nothing
from tests.app.filling import fill
from tests.tiny_folder import write_tiny_folder


@pytest.fixture
def gated(smollm2: Path, tmp_path: Path) -> Iterator[RagPipeline]:
    """Each of its answers is measured."""
    folder = write_tiny_folder(tmp_path / "model", smollm2, spread=0.1)
    settings = Settings(
        model=str(folder), data_dir=tmp_path / "data", cache_dir=tmp_path, max_tokens=4, link_when="always", gate=1.0
    )
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ("bakery.md", "lighthouse.md", "meerkats.md"))
        pipeline.load()
        yield pipeline


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    need_few(monkeypatch)


@pytest.mark.usefixtures("_few")
def test_a_drift_while_serving_is_detected_and_recovers(
    gated: RagPipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert gated.gate.soundness is not None and gated.gate.soundness.sound
    assert level_of(gated, 6)[0] is Level.ASKED
    (state,) = gated.gate.quality.states()
    assert state.measured == 6 and state.kl is not None and 0 < state.kl < 0.15
    place = TorchEngine.place_block

    def spoilt(self: TorchEngine, buffer: KVBuffer, block: Block) -> None:
        place(self, buffer, replace(block, v=-50 * block.v))

    with monkeypatch.context() as patch:
        patch.setattr(TorchEngine, "place_block", spoilt)
        refine_nothing(patch, gated)
        assert level_of(gated, 200, Level.OFF)[0] is Level.OFF
        answer = gated.ask(QUESTION.format(0))
        assert answer.report.reused == 0
        assert any("had drifted" in note for note in answer.notes)
        assert gated.ask(QUESTION.format(0), linker="auto").report.reused > 0
        assert "too far from those without" in caplog.text
    level, took = level_of(gated, 200, Level.ASKED)
    assert level is Level.ASKED, took
    assert "near enough again" in caplog.text
    answer = gated.ask(QUESTION.format(0))
    assert answer.report.reused > 0 and not any("drifted" in note for note in answer.notes)


def test_a_program_that_asks_once_measures_nothing(gated: RagPipeline) -> None:
    """Nobody would hear of it, and it would end later."""
    with RagPipeline(gated.settings) as once:
        once.ask(QUESTION.format(1))
        once.settle()
        assert once.gate.quality.states() == [] and once.gate.quality.seconds == 0.0


def test_a_measurement_that_breaks_is_told_to_nobody(
    gated: RagPipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(ForcedAnswers, "full", broken)
    gated.ask(QUESTION.format(1))
    gated.settle()
    assert "an answer could not be measured" in caplog.text
    assert gated.ask(QUESTION.format(2)).report.incidents == []
    assert gated.gate.quality.seconds > 0.0


def test_an_answer_of_one_token_is_measured_as_others_are(gated: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first tokens alone are farther off, and a client of short answers would have the collection's KV unused."""
    of, seen = divergence.divergence_of, list[int]()
    monkeypatch.setattr(
        divergence, "divergence_of", lambda cache, steps, *more: (seen.append(steps), of(cache, steps, *more))[1]
    )
    gated.ask(QUESTION.format(1), max_tokens=1)
    gated.settle()
    assert seen == [STEPS]


def test_answers_that_nothing_is_linked_for_tell_nothing(gated: RagPipeline) -> None:
    gated.ask(QUESTION.format(1), linker=Full.name)
    gated.settle()
    assert gated.gate.quality.states() == []
