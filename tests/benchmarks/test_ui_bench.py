"""The page's times, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.samples import read_samples
from app.settings import load_settings
from benchmarks.ui import UiBenchOptions
from benchmarks.ui.measurement import questions, run
from ragcache.errors import ConfigError

pytestmark = pytest.mark.slow

FIELDS = {"what", "messages", "n", "p50_ms", "p95_ms", "engine_p50_ms", "over_p50_ms", "over_p95_ms"}


def test_words_reloads_and_keys_are_measured(tiny_folder: Path, tmp_path: Path) -> None:
    settings = load_settings(
        None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32", engine="torch"
    )
    options = UiBenchOptions(questions=2, messages=7, reloads=1, keys=3, answer_tokens=4)
    rows = run(settings, [*read_samples().values()], options, tmp_path, tmp_path / "ui.json")
    assert json.loads((tmp_path / "ui.json").read_text())["rows"] == rows
    assert [(row["what"], row["messages"], row["n"]) for row in rows] == [
        ("first_word", 0, 2), ("reload", 2, 1), ("keystroke", 2, 3), ("reload", 6, 1), ("keystroke", 6, 3),
    ]  # fmt: skip
    assert all(set(row) == FIELDS for row in rows)
    assert all(0 < float(str(row["p50_ms"])) <= float(str(row["p95_ms"])) for row in rows)
    first = rows[0]
    assert 0 < float(str(first["engine_p50_ms"])) < float(str(first["p50_ms"]))


def test_what_is_lacking_is_told(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 plain sentences, and 3 are asked: give more --data"):
        questions(["Here is a sentence that has words enough to be asked for. " * 2], 3)
    assert len(set(questions([*read_samples().values()], 12))) == 12
    options = UiBenchOptions(browser=tmp_path / "none", questions=1)
    settings = load_settings(
        None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32", engine="torch"
    )
    with pytest.raises(ConfigError, match=r"no browser .*none: install Chromium, or name one by --browser"):
        run(settings, [*read_samples().values()], options, tmp_path, None)
