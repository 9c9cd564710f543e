"""How far answers over a collection's KV are off is measured on it, and its predictions follow."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app import RagPipeline, Settings
from app.answering import calibration
from app.answering.calibration import calibrate, fitted, keep
from app.library import fidelity
from app.library.fidelity import Calibration, calibrated
from app.samples import read_samples
from ragcache.errors import ConfigError
from ragcache.linking import make_linker
from ragcache.linking.auto import Auto
from tests.app.filling import LIGHTHOUSE, fill, put

QUESTION = "Who designed the lighthouse?"


@pytest.fixture
def own(tiny_folder: Path, tmp_path: Path) -> Iterator[RagPipeline]:
    """Over an empty catalog, so that a test may write to its collection."""
    settings = Settings(
        model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path, max_tokens=4, link_when="always"
    )
    with RagPipeline(settings) as pipeline:
        yield pipeline


def predicted(pipeline: RagPipeline, linker: str) -> float:
    told = pipeline.ask(QUESTION, linker=linker).report.predicted
    assert told is not None
    return told


def test_predictions_have_the_scale_and_power_that_were_measured() -> None:
    left = np.linspace(0.01, 0.05, 8)[:, None] * np.array([1.0, 0.5, 0.1])
    rows = [[calibration._Measured(float(one), 3.0 * float(one) ** 0.5) for one in row] for row in left]
    scale, power = fitted(rows)
    assert (scale, power) == (pytest.approx(3.0, rel=0.02), pytest.approx(0.5, abs=0.01))
    same = [[calibration._Measured(0.02, 0.1)] * 3] * 4  # nothing tells a power
    assert fitted(same) == (pytest.approx(5.0), pytest.approx(1.0))


def test_ranks_are_compared_with_ties() -> None:
    assert calibration._ranks(np.array([3.0, 1.0, 1.0, 2.0])).tolist() == [4.0, 1.5, 1.5, 3.0]
    assert calibration._rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert calibration._rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert calibration._rank_correlation([1, 1, 1], [3, 2, 1]) is None


def test_what_was_measured_is_what_answers_are_predicted_by(own: RagPipeline) -> None:
    fill(own, ("bakery.md", "lighthouse.md", "meerkats.md"))
    before = predicted(own, "auto:ratio=0.05,scale=1.0,power=1.0")
    found = calibrate(own.library, own.models, "default")
    assert found == calibrate(own.library, own.models, "default"), "the same texts are asked the same"
    assert found.questions >= calibration.FEWEST
    assert found.kl > 0
    keep(own.library.catalog, "default", found)
    told = predicted(own, "auto:ratio=0.05")
    assert told == pytest.approx(found.scale * before**found.power, rel=1e-3)
    assert predicted(own, "auto:ratio=0.05,scale=1.0,power=1.0") == pytest.approx(before), "who says how is obeyed"


def test_it_counts_for_what_it_was_measured_with(own: RagPipeline, caplog: pytest.LogCaptureFixture) -> None:
    put(own, {"/docs/lighthouse.md": LIGHTHOUSE}, kv=True)
    collections = own.library.catalog.collections
    found = Calibration(2.0, 0.5, 0.01, None, 8, 10, "model", "system")
    keep(own.library.catalog, "default", found)
    collection = collections.get("default")
    assert Calibration.of(collection) == found
    assert calibrated(Auto(), collection, "model", "system") == Auto(scale=2.0, power=0.5)
    for linker, fingerprint, system in (
        (Auto(), "other", "system"),
        (Auto(), "model", "other"),
        (Auto(scale=1.0), "model", "system"),
        (Auto(power=1.0), "model", "system"),
        (Auto(depth=0.5), "model", "system"),
        (make_linker("fast"), "model", "system"),
        (make_linker("cci"), "model", "system"),
    ):
        assert calibrated(linker, collection, fingerprint, system) is linker
    for wrong in (
        {"scale": 1},
        found.as_json() | {"scale": -1.0},
        found.as_json() | {"scale": "x"},
        found.as_json() | {"scale": 10**400},
        found.as_json() | {"chunks": None},
    ):
        collections.set_fidelity(collection, wrong)
        with caplog.at_level(logging.WARNING):
            assert calibrated(Auto(), collections.get("default"), "model", "system") == Auto()
        assert "cannot be read" in caplog.text
        caplog.clear()


def test_too_few_texts_tell_nothing(own: RagPipeline) -> None:
    put(own, {"/docs/one.md": "# One\n\nThe lamp was lit. It burnt oil. Nobody saw it."}, kv=True)
    with pytest.raises(
        ConfigError, match=r"too few texts with sentences and KV .* 0 prompts could be measured, and it"
    ):
        calibrate(own.library, own.models, "default")


def test_what_is_not_cached_is_no_prompt_to_measure(own: RagPipeline) -> None:
    fill(own, ("bakery.md", "lighthouse.md", "meerkats.md"), kv=False)
    with pytest.raises(ConfigError, match="0 prompts could be measured"):
        calibrate(own.library, own.models, "default")


def test_all_that_is_cached_is_linked_for_it(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an answer would rather compute it, or what a slow disk has not brought yet."""
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path, link_when="sooner")
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ("bakery.md", "lighthouse.md", "meerkats.md"))
        for asked in ("ragcache.engine.torch.generation.worth_linking", "ragcache.loader.cake.CakeLoader.begin"):
            monkeypatch.setattr(asked, None)  # whoever asks fails
        assert calibrate(pipeline.library, pipeline.models, "default").questions >= calibration.FEWEST


def test_a_long_ingest_measures_it_once(own: RagPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, get = tmp_path / "docs", own.library.catalog.collections.get
    folder.mkdir()
    (folder / "lighthouse.md").write_text(LIGHTHOUSE)
    own.ingest(folder)
    assert get("default").fidelity is None, "too short an ingest for it"
    monkeypatch.setattr(fidelity, "DUE_TOKENS", 1)
    for name, text in read_samples().items():
        (folder / name).write_text(text)
    assert own.ingest(folder, dry_run=True).tokens
    assert get("default").fidelity is None, "a rehearsal writes nothing"
    own.ingest(folder)
    kept = Calibration.of(get("default"))
    assert kept is not None
    monkeypatch.setattr(calibration, "calibrate", None)  # whoever asks for it fails
    (folder / "more.md").write_text("# More\n\nThe lamp was lit in 1855. Its keeper lived alone there.")
    own.ingest(folder)
    assert Calibration.of(get("default")) == kept
