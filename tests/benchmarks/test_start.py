from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.settings import load_settings
from benchmarks.start import StartBenchOptions
from benchmarks.start.measurement import measure, run
from ragcache.errors import ConfigError


@pytest.mark.slow
def test_every_command_has_a_row(tiny_folder: Path, tmp_path: Path) -> None:
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32")
    run(settings, tmp_path / "work", StartBenchOptions(("ls", "ask"), 1), tmp_path / "start.json")
    ls, ask = json.loads((tmp_path / "start.json").read_text())["rows"]
    assert (ls["command"], ask["command"]) == ("ls", "ask")
    assert 0 < ls["imports"] < ask["imports"]
    assert min(ls["seconds"], ask["seconds"]) > 0


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    settings = load_settings(None, data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with pytest.raises(ConfigError, match="`ragcache show 1` failed: error: no document 1: "):
        measure(("show", "1"), settings)
