"""The quality benchmark over texts that several splitters have cut, on a small random model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.models.loading import TorchModel
from benchmarks.data import read_dataset
from benchmarks.quality import QualityBenchOptions
from benchmarks.quality.comparison import compare
from benchmarks.quality.measurement import Measurement, run
from benchmarks.quality.torch import TorchAnswering
from ragcache.errors import ConfigError
from ragcache.report import Report
from ragcache.types import Segment
from tests.benchmarks.conftest import letters
from tests.benchmarks.test_quality import TIMES
from tests.benchmarks.test_quality import options as quality_options

BOTH = ("fixed", "semantic")


def options(linkers: str = "naive", **changed: Any) -> QualityBenchOptions:
    """Chunks of a length at which each splitter cuts the corpora in its own way."""
    return quality_options(linkers, **{"contexts": ("document",), "chunk_tokens": 30, "ttft_prompts": 1} | changed)


@pytest.mark.slow
def test_a_row_for_each_splitter_and_linker(
    parts: TorchModel, corpora_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = read_dataset(corpora_folder)
    rows = run(parts, letters, data, options("full,naive", splitters=BOTH), tmp_path / "both.json")
    assert capsys.readouterr().out.startswith("splitter ")
    assert [(row["splitter"], row["linker"]) for row in rows] == [
        (name, linker) for name in BOTH for linker in ("full", "naive")
    ]
    assert rows[1]["kl"] != rows[3]["kl"], "each has prompts of its own chunks"
    assert [row["ttft_speedup"] for row in rows[::2]] == [1, 1], "each has the full recompute of its own prompts"
    for name, expected in zip(BOTH, (rows[:2], rows[2:]), strict=True):
        chosen = options("full,naive", splitters=(name,))
        alone = run(parts, letters, data, chosen, tmp_path / "alone.json")
        assert capsys.readouterr().out.startswith("linker "), "one splitter needs no column"
        for one, other in zip(alone, expected, strict=True):
            assert {key: one[key] for key in one.keys() - TIMES} == {key: other[key] for key in other.keys() - TIMES}
    document = json.loads((tmp_path / "both.json").read_text())
    assert document["settings"]["splitters"] == list(BOTH)
    assert all(record["answer"].keys() == set(BOTH) for record in document["answers"].values())


def test_splitters_take_turns_until_the_first_token(
    parts: TorchModel, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Sequence[Segment], str]] = []
    first_token = TorchAnswering.first_token

    def recorded(self: TorchAnswering, segments: Sequence[Segment], linker: str) -> Report:
        asked.append((segments, linker))
        return first_token(self, segments, linker)

    monkeypatch.setattr(TorchAnswering, "first_token", recorded)
    chosen = options(splitters=BOTH, ttft_rounds=3, limit=1)
    run(parts, letters, read_dataset(corpora_folder), chosen, tmp_path / "out.json")
    one_round = asked[:4]
    assert asked == one_round * 3
    assert [linker for _, linker in one_round] == ["full", "naive", "full", "naive"]
    assert one_round[0][0] == one_round[1][0] != one_round[2][0] == one_round[3][0]


@pytest.mark.slow
def test_what_other_splitters_gave_is_not_continued(
    parts: TorchModel, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out, summary = read_dataset(corpora_folder), tmp_path / "out.json", "benchmarks.quality.measurement.summarise"
    chosen = options()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(summary, lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        run(parts, letters, data, chosen, out)
    other = options(splitters=("semantic",), resume=True)
    measured: list[str] = []
    measure = Measurement._measure
    monkeypatch.setattr(
        Measurement, "_measure",
        lambda self, prompts, *rest, **named: (measured.extend(prompts), measure(self, prompts, *rest, **named))[1],
    )  # fmt: skip
    assert [row["splitter"] for row in run(parts, letters, data, other, out)] == ["semantic"]
    assert measured == ["semantic"] * 4


def test_a_splitter_with_nothing_to_cut_is_refused(parts: TorchModel, given_file: Path, tmp_path: Path) -> None:
    data, out = read_dataset(given_file), tmp_path / "out.json"
    kept = out.with_name("out.json.partial.jsonl")
    kept.write_text("of an interrupted run")
    with pytest.raises(ConfigError, match="--splitter semantic: no passage of these questions is longer than"):
        run(parts, letters, data, options(splitters=("semantic",)), out)
    assert kept.exists(), "nothing is begun"
    shorter = options(splitters=("semantic",), chunk_tokens=12, limit=1)
    assert [row["splitter"] for row in run(parts, letters, data, shorter, out)] == ["semantic"]


@pytest.mark.slow
def test_runs_are_compared_splitter_by_splitter(parts: TorchModel, corpora_folder: Path, tmp_path: Path) -> None:
    both, one, other = (tmp_path / f"{name}.json" for name in ("both", "one", "other"))
    for out, names in ((both, BOTH), (one, ("semantic",)), (other, ("fixed",))):
        chosen = options(splitters=names)
        run(parts, letters, read_dataset(corpora_folder), chosen, out)
    (row,) = compare(both, one)
    assert (row["splitter"], row["linker"], row["difference"], row["n"]) == ("semantic", "naive", 0, 4)
    with pytest.raises(ConfigError, match="with the same settings, splitter and context"):
        compare(one, other)


def test_results_that_do_not_tell_their_splitter_are_not_compared(tmp_path: Path) -> None:
    older = tmp_path / "older.json"
    older.write_text(json.dumps({"settings": {"seed": 0}, "answers": {}}))
    with pytest.raises(ConfigError, match="does not tell what cut its texts, as results do now: run it again"):
        compare(older, older)
