"""The load benchmark against the real engine, small and short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.samples import read_samples
from app.settings import load_settings
from benchmarks.load import SYSTEMS, LoadBenchOptions
from ragcache.errors import ConfigError
from tests.benchmarks.small_folder import write_small_folder

TEXTS = list(read_samples().values())
SMALL = {"enforce_eager": True, "block_size": 32, "kv_cache_memory_bytes": 64_000_000}
OPTIONS = LoadBenchOptions(SYSTEMS, (0.5, 1.0), 0.5, 3, 4, 40, 5, 12, 1.0, "auto", "document", 0)


def test_every_system_under_every_load(smollm2: Path, tmp_path: Path) -> None:
    from benchmarks.load.measurement import run

    folder, out = write_small_folder(tmp_path / "model", smollm2), tmp_path / "load.json"
    settings = load_settings(None, model=str(folder), dtype="float32", cache_dir=tmp_path, engine="vllm")
    rows = run(settings, TEXTS, OPTIONS, out, **SMALL)
    document = json.loads(out.read_text())
    assert document["rows"] == rows
    assert [(row["system"], row["load"]) for row in rows] == [(name, load) for name in SYSTEMS for load in (0.5, 1.0)]
    stock, prefix, linked = (rows[place : place + 2] for place in (0, 2, 4))
    for one, two, three in zip(stock, prefix, linked, strict=True):
        assert one["n"] == two["n"] == three["n"], "the same requests"
        assert one["rate"] == two["rate"] == three["rate"]
        assert one["part"] == 1, "stock reuses nothing"
        assert 0.1 < two["part"] < 1, "System at least is shared"
        assert 0 < three["part"] < 0.6
        for row in (one, two, three):
            assert 0 < row["ttft_p50"] <= row["ttft_p99"]
            assert 0 < row["itl_p50"] <= row["itl_p99"]
    assert document["settings"]["saturation"] * 0.5 == pytest.approx(rows[0]["rate"])
    assert {one["system"] for one in document["sustained"]} <= {"stock", "prefix"}

    with pytest.raises(ConfigError, match="ask for fewer --chunks"):
        run(
            settings,
            TEXTS,
            LoadBenchOptions(SYSTEMS, (1.0,), 0.5, 3, 12, 200, 5, 12, 1.0, "auto", "document", 0),
            None,
            **SMALL,
        )
