"""The benchmark of ingests: what it measures and writes; the figures themselves are the machine's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.loaders import load
from app.samples import read_samples
from app.settings import load_settings
from benchmarks.ingest import CASES, IngestBenchOptions
from benchmarks.ingest import measurement as ingest
from benchmarks.ingest.files import FORMATS, write_documents

TEXTS = list(read_samples().values())


@pytest.mark.slow
def test_ingest(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "LONG", 2000)  # the small model's context is short
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32", device="cpu")
    out = tmp_path / "ingest.json"
    rows = ingest.run(settings, TEXTS, IngestBenchOptions(CASES, 3, 1, 2, 1, 0), out)
    assert json.loads(out.read_text())["rows"] == rows
    assert [(row["case"], row["documents"]) for row in rows] == [("unchanged", 3), ("embed", 1), ("kv", 2)]
    for row in rows:
        assert list(row) == ["case", "documents", "tokens", "seconds", "baseline_s", "ratio"]
        assert isinstance(row["seconds"], float) and isinstance(row["baseline_s"], float)
        assert row["ratio"] == pytest.approx(row["baseline_s"] / row["seconds"])


def test_documents_differ_and_can_be_read(tmp_path: Path) -> None:
    paths = sorted(write_documents(tmp_path / "a", TEXTS, 8, 3000, 0).iterdir())
    parsed = [load(path) for path in paths]
    assert {path.suffix for path in paths} == {f".{name}" for name in FORMATS}
    assert len({one.text for one in parsed}) == 8
    assert all(2500 < len(one.text) < 4500 for one in parsed)
    same = sorted(write_documents(tmp_path / "b", TEXTS, 8, 3000, 0).iterdir())
    assert [path.read_bytes() for path in same] == [path.read_bytes() for path in paths]
