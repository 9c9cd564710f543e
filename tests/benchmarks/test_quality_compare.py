from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.models.loading import TorchModel
from benchmarks.data import read_dataset
from benchmarks.quality.comparison import compare
from benchmarks.quality.measurement import run
from ragcache.errors import ConfigError
from tests.benchmarks.conftest import letters
from tests.benchmarks.test_quality import options


@pytest.fixture
def ours(parts: TorchModel, given_file: Path, tmp_path: Path) -> Path:
    out = tmp_path / "ours.json"
    run(parts, letters, read_dataset(given_file), options("naive,query", contexts=("alone",), ttft_prompts=1), out)
    return out


def changed(path: Path, **settings: Any) -> Path:
    """Another run, whose KL of the first question's `naive` is .5 higher."""
    document = json.loads(path.read_text())
    document["settings"] |= settings
    next(iter(document["answers"].values()))["results"][0]["kl"] += 0.5
    other = path.with_name("other.json")
    other.write_text(json.dumps(document))
    return other


def test_runs_are_compared_question_by_question(ours: Path) -> None:
    naive, query = compare(ours, changed(ours))
    assert [row["linker"] for row in (naive, query)] == ["naive", "query"]
    assert naive["n"] == 4
    assert naive["difference"] == pytest.approx(-0.125)
    assert naive["furthest"] == pytest.approx(-0.5)
    assert naive["low"] < naive["difference"] < naive["high"] == 0
    assert naive["other_kl"] == pytest.approx(naive["kl"] + 0.125)
    assert (query["difference"], query["furthest"], query["part"]) == (0, 0, query["other_part"])


@pytest.mark.slow
def test_linkers_of_other_settings_are_left_out(ours: Path) -> None:
    linkers = json.loads(ours.read_text())["settings"]["linkers"]
    rows = compare(ours, changed(ours, linkers=linkers | {"query": "Query(first=7)"}))
    assert [row["linker"] for row in rows] == ["naive"]
    with pytest.raises(ConfigError, match="has no linker of"):
        compare(ours, changed(ours, linkers=dict.fromkeys(linkers, "Other()")))


@pytest.mark.slow
def test_runs_that_asked_something_else_are_refused(ours: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed is 0 here and 1 there"):
        compare(ours, changed(ours, seed=1))
    with pytest.raises(ConfigError, match="shape is 'question' here and 'needle' there"):
        compare(ours, changed(ours, shape="needle"))
    for text in ("", "{}", "[]"):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(ConfigError, match="is no result of `ragcache bench quality`"):
            compare(ours, tmp_path / "other.json")


@pytest.mark.slow
def test_a_result_from_before_there_were_shapes_asked_the_questions(ours: Path) -> None:
    other = changed(ours)
    document = json.loads(other.read_text())
    del document["settings"]["shape"]
    other.write_text(json.dumps(document))
    assert len(compare(ours, other)) == 2
