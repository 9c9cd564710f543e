"""A short soak of a real server over the small random model, and what it would say of a loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.samples import read_samples
from app.settings import load_settings
from benchmarks.serve.child import serving
from benchmarks.soak import SoakBenchOptions
from benchmarks.soak.actors import COLLECTION, USES, SoakRun, missing
from benchmarks.soak.measurement import run


@pytest.mark.slow
def test_nothing_is_lost_in_a_short_one(tiny_folder: Path, tmp_path: Path) -> None:
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32", threads=1)
    options = SoakBenchOptions(minutes=0.3, answer_tokens=8, documents=2)
    rows = run(settings, [*read_samples().values()], options, tmp_path / "servers", tmp_path / "soak.json")
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["rows"] == rows
    assert [row["use"] for row in rows] == [*USES, "server"]
    assert (found["errors"], found["lost"]) == ({}, {})
    assert all((row["errors"], row["lost"]) == (0, 0) for row in rows)
    assert all(int(str(row["done"])) > 0 for row in rows)


@pytest.mark.slow
def test_what_is_not_there_is_told(tiny_folder: Path, tmp_path: Path) -> None:
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32", threads=1)
    with serving(settings, tmp_path / "server") as child:
        soaked = SoakRun(child.url, child.model, ["Words."], 4, 2, 0)
        with soaked.client() as client:
            client.post("/v1/collections", json={"name": COLLECTION}).raise_for_status()
            made = client.post("/v1/conversations", json={"collection": COLLECTION}).json()["id"]
        soaked.kept["lost.md"] = 17, "mark 17"
        soaked.told[made] = ["An answer that nobody has stored."]
        assert len(missing(soaked)) == 2
