"""The benchmark of a burst against the real engine, small and short."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.samples import read_samples
from app.settings import load_settings
from benchmarks.burst import ADAPTIVE, ALONE, CASES, ORDERED, BurstBenchOptions
from benchmarks.cake import CHUNKS, EXACT
from ragcache.errors import ConfigError
from tests.benchmarks.small_folder import write_small_folder

TEXTS = list(read_samples().values())
SMALL = {"enforce_eager": True, "block_size": 32, "kv_cache_memory_bytes": 64_000_000}
OPTIONS = BurstBenchOptions(
    bandwidths=(100.0,), tokens=300, chunk_tokens=40, others=3, shortest=5, longest=20, answer_tokens=3, rounds=1
)


def test_a_long_cached_request_and_a_burst_behind_it(smollm2: Path, tmp_path: Path) -> None:
    from benchmarks.burst.measurement import run

    folder, out = write_small_folder(tmp_path / "model", smollm2), tmp_path / "burst.json"
    settings = load_settings(None, model=str(folder), dtype="float32", cache_dir=tmp_path, engine="vllm")
    rows = run(settings, TEXTS, OPTIONS, out, **SMALL)
    assert json.loads(out.read_text())["rows"] == rows
    assert [(row["kind"], row["case"]) for row in rows] == [(kind, case) for kind in (EXACT, CHUNKS) for case in CASES]
    by_case = {(row["kind"], row["case"]): row for row in rows}
    for kind in (EXACT, CHUNKS):
        alone, ordered, adaptive = (by_case[kind, case] for case in (ALONE, ORDERED, ADAPTIVE))
        assert alone["cached_ttft_s"] is None and ordered["others_ttft_s"] is None
        assert 0 < ordered["cached_ttft_s"] < ordered["finish_s"], "the others are asked behind its first token"
        assert 0 < adaptive["cached_ttft_s"] <= adaptive["finish_s"]
        assert 0 <= adaptive["part"] <= 1
        assert adaptive["against_ordered"] == pytest.approx(adaptive["finish_s"] / ordered["finish_s"])
        assert adaptive["others_slower"] == pytest.approx(adaptive["others_ttft_s"] / alone["others_ttft_s"])
    assert by_case[EXACT, ADAPTIVE]["load_s"] > 0

    with pytest.raises(ConfigError, match="--shortest 21 is more than --longest 20"):
        run(settings, TEXTS, replace(OPTIONS, shortest=21), None, **SMALL)
