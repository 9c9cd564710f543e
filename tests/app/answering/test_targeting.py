"""A collection is tuned to a divergence: what is chosen, that it is checked, and that answers follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app import RagPipeline, Settings
from app.answering.calibration import calibrate, keep
from app.answering.target import AnswerTarget
from app.answering.targeting import NOTHING, TRIED, aim, chosen
from app.cachecare.explaining import explain
from app.library.fidelity import Calibration
from ragcache.errors import ConfigError
from tests.app.filling import fill
from tests.tiny_folder import write_tiny_folder

QUESTION = "Who designed the lighthouse?"
ASKED = [f"Who {does} the {thing}?" for does in ("saw", "made", "kept", "knows") for thing in ("light", "bread")]
PARTS = np.linspace(0.01, 0.6, len(TRIED))
HALVES = [np.arange(0, 12, 2), np.arange(1, 12, 2)]


def found(kl: np.ndarray) -> np.ndarray:
    """[questions, linkers, 3]: texts are the likelier the smaller the divergence."""
    return np.stack([kl, np.broadcast_to(PARTS, kl.shape), 1 - kl], axis=-1)


def kl(value: float) -> AnswerTarget:
    return AnswerTarget("kl", value)


def test_the_one_that_computes_least_of_those_near_enough_is_chosen() -> None:
    far = np.broadcast_to(0.1 / (1 + np.arange(len(TRIED))), (12, len(TRIED)))
    told = chosen(found(far), HALVES, kl(0.03))
    assert told.linker == TRIED[3]
    assert [one.linker for one in told.trials] == list(TRIED)
    assert told.held_out is not None and told.held_out.linker == TRIED[3] and told.held_out.kl == pytest.approx(0.025)
    assert chosen(found(far), HALVES, kl(0.001)).linker == NOTHING


@pytest.mark.parametrize("measure", ["f1", "rouge_l"])
def test_texts_are_to_be_as_alike(measure: str) -> None:
    far = np.broadcast_to(0.1 / (1 + np.arange(len(TRIED))), (12, len(TRIED)))
    told = chosen(found(far), HALVES, AnswerTarget(measure, 0.97))
    assert told.linker == TRIED[3] and told.target == f"{measure}=0.97"
    assert told.held_out is not None and told.held_out.alike == pytest.approx(0.975)
    assert chosen(found(far), HALVES, AnswerTarget(measure, 0.999)).linker == NOTHING


def test_a_target_is_told_as_it_is_read() -> None:
    for told in ("kl=0.02", "f1=0.9", "rouge_l=1", "kl=3"):
        assert str(AnswerTarget.parse(told)) == told
    for wrong in ("", "kl", "kl=", "kl=0", "kl=nan", "kl=inf", "f1=1.1", "f1=-1", "bleu=0.5", "f1=x"):
        with pytest.raises(ConfigError, match="no target"):
            AnswerTarget.parse(wrong)


def test_what_only_looked_good_on_the_questions_that_chose_it_is_not_kept() -> None:
    """Of two linkers each is near on one half alone: that half chooses it, and it fails on the other."""
    far = np.full((12, len(TRIED)), 0.9)
    far[0::2, 0] = far[1::2, 1] = 0.001
    told = chosen(found(far), HALVES, kl(0.46))
    assert told.held_out is not None and told.held_out.kl > 0.46
    assert told.linker == NOTHING


def test_no_number_is_near_nothing() -> None:
    far = np.full((12, len(TRIED)), np.nan)
    far[:, 4] = 0.01
    assert chosen(found(far), HALVES, kl(0.02)).linker == TRIED[4]


@pytest.fixture
def own(smollm2: Path, tmp_path: Path) -> Iterator[RagPipeline]:
    folder = write_tiny_folder(tmp_path / "model", smollm2, spread=0.15)
    settings = Settings(
        model=str(folder), data_dir=tmp_path / "data", cache_dir=tmp_path, max_tokens=4, link_when="always"
    )
    with RagPipeline(settings) as pipeline:
        yield pipeline


def test_answers_follow_what_the_collection_was_tuned_to(own: RagPipeline) -> None:
    fill(own, ("bakery.md", "lighthouse.md", "meerkats.md"))
    assert own.ask(QUESTION).report.linker == "auto"
    told = aim(own.library, own.models, "default", kl(100.0), ASKED)
    assert told.questions == len(ASKED)
    assert told.linker == told.trials[0].linker != NOTHING, "all are near enough, so the cheapest"
    assert all(0 <= one.part < 1 and one.kl >= 0 for one in told.trials)
    measured = calibrate(own.library, own.models, "default")
    collection = own.library.catalog.collections.get("default")
    own.library.catalog.collections.set_fidelity(collection, replace(measured, linker="cci:alpha=0.5").as_json())
    assert own.ask(QUESTION).report.linker == explain(own, QUESTION).linker == "cci"
    assert own.ask(QUESTION, system="Answer as a pirate.").report.linker == "auto", "nobody has measured that"
    assert own.ask(QUESTION, linker="naive").report.linker == "naive", "who asks for one gets it"
    keep(own.library.catalog, "default", measured)
    kept = Calibration.of(own.library.catalog.collections.get("default"))
    assert kept is not None and kept.linker == "cci:alpha=0.5", "what an ingest measures leaves it"
    keep(own.library.catalog, "default", replace(measured, linker="naive", target="kl=0.5"))
    aimed = Calibration.of(own.library.catalog.collections.get("default"))
    assert aimed is not None and (aimed.linker, aimed.target) == ("naive", "kl=0.5"), "a new aim takes its place"
    other = own.settings.model_copy(update={"linker": "fast"})
    with RagPipeline(other) as pipeline:
        assert pipeline.ask(QUESTION).report.linker == "fast", "and so do the settings"


def test_a_linker_that_nobody_knows_is_left_out(own: RagPipeline) -> None:
    fill(own, ("lighthouse.md", "bakery.md", "meerkats.md"))
    measured = calibrate(own.library, own.models, "default")
    collection = own.library.catalog.collections.get("default")
    own.library.catalog.collections.set_fidelity(collection, replace(measured, linker="of a newer version").as_json())
    assert own.ask(QUESTION).report.linker == "auto"


def test_answers_are_compared_as_texts(own: RagPipeline) -> None:
    """By the collection's own questions, and by given ones."""
    fill(own, ("bakery.md", "lighthouse.md", "meerkats.md"))
    for target, asked in (("f1=0.001", None), ("rouge_l=0.001", ASKED)):
        told = aim(own.library, own.models, "default", AnswerTarget.parse(target), asked)
        assert all(one.alike is not None and 0 <= one.alike <= 1 for one in told.trials)
        nearest = min(told.trials, key=lambda one: one.kl)
        assert nearest.alike is not None and nearest.alike > 0, "it says some of what the full recompute says"


def test_where_nothing_is_cached_nothing_is_chosen(own: RagPipeline) -> None:
    fill(own, ("bakery.md", "lighthouse.md"), kv=False)
    with pytest.raises(ConfigError, match="cache warm"):
        aim(own.library, own.models, "default", kl(0.02))
