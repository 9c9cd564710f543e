from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.models.loading import TorchModel
from app.samples import read_samples
from benchmarks.corpus import prompt_chunks, split_documents
from benchmarks.partial import BESIDE, KEEPING, PartialBenchOptions
from benchmarks.partial.measurement import DECODING, WARM_UPS, measure, part_of
from benchmarks.partial.torch import TorchPrompts

TEXTS = list(read_samples().values())
OPTIONS = PartialBenchOptions((0, 50, 100), (400,), BESIDE, 2, "naive", 60, 2)


def test_a_row_for_each_share_and_state(parts: TorchModel, tmp_path: Path) -> None:
    out = tmp_path / "partial.json"
    rows = measure(TorchPrompts(parts), TEXTS, OPTIONS, out)
    assert json.loads(out.read_text())["rows"] == rows
    assert [(row["engine"], row["tokens"], row["beside"], row["cached"]) for row in rows] == [
        ("torch", 400, beside, share) for beside in BESIDE for share in OPTIONS.cached
    ]
    for row in rows:
        assert row["ratio_high"] >= row["ratio"] > 0
    assert all(row["reused"] == 0 for row in rows if row["cached"] == 0)
    assert not [one for one in threading.enumerate() if one.name.startswith(DECODING)], "nobody decodes any more"


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 5, 25, 50, 75, 100])
def test_chunks_of_about_a_share_of_the_tokens_are_cached(parts: TorchModel, share: int) -> None:
    documents = split_documents(parts.template, TEXTS, 60)
    chunks = prompt_chunks(parts.template, documents, 1500, "What?", 0)
    part, total = sum(map(len, part_of(chunks, share, 0))), sum(map(len, chunks))
    assert abs(100 * part / total - share) < 5
    assert share < 100 or part == total


def test_right_behind_a_prompt_what_it_lacked_is_being_captured(
    parts: TorchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each round lacks the same."""
    captured: list[str] = []
    capture = type(parts.engine).capture

    def noting(engine: Any, before: Any, segment: Any, pause: Any = None) -> Any:
        captured.append(threading.current_thread().name)
        return capture(engine, before, segment, pause)

    monkeypatch.setattr(type(parts.engine), "capture", noting)
    rows = measure(TorchPrompts(parts), TEXTS, replace(OPTIONS, beside=(KEEPING,), cached=(0, 50)), None)
    assert rows[0]["reused"] == 0
    assert captured.count("ragcache-keep") >= 2 * (OPTIONS.rounds + WARM_UPS)
