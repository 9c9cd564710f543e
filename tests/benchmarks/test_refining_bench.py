from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.settings import load_settings
from benchmarks.choices import parse_linkers
from benchmarks.refining import SYSTEMS, RefiningBenchOptions
from benchmarks.refining.measurement import main


@pytest.mark.parametrize(("form", "half"), [("given_file", 2), ("corpora_folder", 1)])
def test_all_systems_answer_the_second_half(
    form: str,
    half: int,
    tiny_folder: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32", codec="raw")
    data, out = request.getfixturevalue(form), tmp_path / "out.json"
    options = RefiningBenchOptions(parse_linkers("naive,full"), SYSTEMS, 4, 3, 32, 1, 4, 0, data=data)
    main(settings, options, out)
    told = json.loads(out.read_text())
    rows = {(row["system"], row["linker"]): row for row in told["rows"]}
    assert set(rows) == {(system, linker) for system in SYSTEMS for linker in ("naive", "full")}
    for (system, linker), row in rows.items():
        assert row["questions"] == half
        assert (row["captured"] > 0) is (system != "ingest")
        assert (row["part"], row["kl"]) == (1, pytest.approx(0, abs=1e-6)) if linker == "full" else row["kl"] > 0
    ingest, serving = rows["ingest", "naive"], rows["serving", "naive"]
    assert serving["entries"] > ingest["entries"]
    assert serving["cfo"] <= ingest["cfo"]
    assert len(told["answers"]["serving naive"]) == half
