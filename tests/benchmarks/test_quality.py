"""The plumbing of the quality benchmark, on a small random model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.models.loading import TorchModel
from benchmarks.data import read_dataset
from benchmarks.quality import QualityBenchOptions
from benchmarks.quality.baselines import parse_methods
from benchmarks.quality.measurement import Measurement, run
from tests.benchmarks.conftest import letters

FIELDS = {
    "splitter", "linker", "context", "pool", "shape", "engine", "part", "ttft_s", "ttft_speedup", "n",
    *(f"{name}{end}" for name in ("kl", "kl_first", "agree", "rouge_l", "f1") for end in ("", "_low", "_high")),
}  # fmt: skip
TIMES = {"ttft_s", "ttft_speedup"}


def options(linkers: str = "full,naive,query:first=2,ratio=0.2", **changed: Any) -> QualityBenchOptions:
    chosen: dict[str, Any] = {
        "contexts": ("alone", "document"), "limit": None, "seed": 0, "max_tokens": 5, "top_k": 3, "order": "best",
        "chunk_tokens": 20, "ttft_rounds": 1, "ttft_prompts": 2, "data": Path(),
    }  # fmt: skip
    return QualityBenchOptions(parse_methods(linkers), **{**chosen, **changed})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.json"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["given_file", "corpora_folder"])
def test_rows(form: str, parts: TorchModel, out: Path, request: pytest.FixtureRequest) -> None:
    data = read_dataset(request.getfixturevalue(form))
    rows = run(parts, letters, data, options(), out)
    document = json.loads(out.read_text())
    assert document["rows"] == rows
    assert document["settings"]["contexts_dropped"] == {"fixed": 0}
    assert document["settings"]["splitters"] == ["fixed"]
    assert [(row["linker"], row["context"]) for row in rows] == [
        (linker, context)
        for linker in ("full", "naive", "query:first=2,ratio=0.2")
        for context in ("alone", "document")
    ]
    for row in rows:
        assert set(row) == FIELDS
        assert row["n"] == 4
        assert (row["f1"] is None) == (form == "corpora_folder"), "there it has no right answers to compare with"
        assert row["kl_low"] <= row["kl"] <= row["kl_high"]
        assert row["ttft_s"] > 0
    assert not out.with_name("out.json.partial.jsonl").exists()


@pytest.mark.slow
def test_full_against_full_is_exactly_nothing(parts: TorchModel, given_file: Path, out: Path) -> None:
    rows = run(parts, letters, read_dataset(given_file), options(), out)
    for row in rows[:2]:
        assert (row["kl"], row["kl_high"], row["kl_first"], row["agree"], row["rouge_l"]) == (0.0, 0.0, 0.0, 1.0, 1.0)
        assert (row["part"], row["ttft_speedup"]) == (1.0, 1.0)
    for row in rows[2:]:
        assert row["kl_low"] > 1e-6, "what is linked is not the same, so the zero above is no accident"
        assert row["part"] < 0.7


@pytest.mark.slow
def test_full_is_not_measured_by_a_short_cut(
    parts: TorchModel, given_file: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that gives other logits at each call shows in the figures of `full`."""
    logits, calls = parts.engine.logits, iter(range(10**6))
    monkeypatch.setattr(parts.engine, "logits", lambda hidden: logits(hidden) * (1 + 0.01 * next(calls)))
    rows = run(parts, letters, read_dataset(given_file), options("full", ttft_prompts=1), out)
    assert all(row["kl"] > 0 for row in rows)


@pytest.mark.slow
def test_an_interrupted_run_is_continued(
    parts: TorchModel, given_file: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, measure = read_dataset(given_file), Measurement._measure
    at_once = run(parts, letters, data, options(), out)
    measured: list[str] = []

    def interrupted(self: Measurement, prompts: Any, caches: Any, timed: bool) -> Any:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(prompts["fixed"].name)
        return measure(self, prompts, caches, timed)

    monkeypatch.setattr(Measurement, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(parts, letters, data, options(), out)
    monkeypatch.setattr(
        Measurement, "_measure",
        lambda self, prompts, *rest, **named: (
            measured.append(prompts["fixed"].name), measure(self, prompts, *rest, **named)
        )[1],
    )  # fmt: skip
    rows = run(parts, letters, data, options(resume=True), out)
    assert measured == [question.name for question in data.questions], "none of them twice"
    for row, expected in zip(rows, at_once, strict=True):
        assert {key: row[key] for key in FIELDS - TIMES} == {key: expected[key] for key in FIELDS - TIMES}


@pytest.mark.slow
def test_a_limit_takes_so_many_questions(parts: TorchModel, given_file: Path, out: Path) -> None:
    rows = run(parts, letters, read_dataset(given_file), options("naive", limit=2, contexts=("alone",)), out)
    assert [row["n"] for row in rows] == [2]


@pytest.mark.slow
def test_answers_of_one_token(parts: TorchModel, given_file: Path, out: Path) -> None:
    rows = run(parts, letters, read_dataset(given_file), options("naive", max_tokens=1, contexts=("alone",)), out)
    assert rows[0]["kl"] == rows[0]["kl_first"]


@pytest.mark.slow
def test_an_answer_that_ends_at_once_is_compared_at_its_end(
    parts: TorchModel, given_file: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts.template, "stop", frozenset(range(parts.engine.spec.vocabulary)))
    rows = run(parts, letters, read_dataset(given_file), options("naive", contexts=("alone",)), out)
    assert rows[0]["kl"] == rows[0]["kl_first"] > 0
    assert rows[0]["rouge_l"] == 1.0, "two empty answers"
