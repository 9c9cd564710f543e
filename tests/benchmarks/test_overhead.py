"""The server's own share of a first token, over the small random model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.samples import read_samples
from app.settings import load_settings
from benchmarks.overhead import OverheadBenchOptions
from benchmarks.overhead.measurement import run
from ragcache.errors import ConfigError

FIELDS = {"tokens", "cached", "engine_ttft_ms", "server_ttft_ms", "over_ms", "over_p90_ms"}


def test_both_are_measured(tiny_folder: Path, tmp_path: Path) -> None:
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32")
    options = OverheadBenchOptions(tokens=(300,), chunk_tokens=64, rounds=3)
    rows = run(settings, [*read_samples().values()], options, tmp_path / "own", tmp_path / "overhead.json")
    assert json.loads((tmp_path / "overhead.json").read_text())["rows"] == rows
    assert [set(row) for row in rows] == [FIELDS]
    assert all(float(str(value)) > 0 for name, value in rows[0].items() if not name.startswith("over"))


def test_too_little_text_is_told(tiny_folder: Path, tmp_path: Path) -> None:
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32")
    with pytest.raises(ConfigError, match="give more --data"):
        run(settings, ["A few words."], OverheadBenchOptions(tokens=(300,)), tmp_path / "own", None)
