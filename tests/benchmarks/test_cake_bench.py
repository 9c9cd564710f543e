from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.models.loading import TorchModel
from app.samples import read_samples
from benchmarks.cake import CakeBenchOptions
from benchmarks.cake import measurement as cake
from benchmarks.choices import parse_linker
from ragcache.errors import ConfigError

TEXTS = list(read_samples().values())


def test_every_mode_of_every_case_is_told(parts: TorchModel, tmp_path: Path) -> None:
    out = tmp_path / "cake.json"
    options = CakeBenchOptions(
        bandwidths=(7.0, 1e6), utilisations=(0.5, 1.0), tokens=(300,), linker=parse_linker("auto", ""),
        chunk_tokens=60, rounds=1,
    )  # fmt: skip
    rows = cake.run(parts, TEXTS, options, out)
    assert json.loads(out.read_text())["rows"] == rows
    assert [(row["kind"], row["utilisation"], row["bandwidth_gbps"], row["mode"]) for row in rows] == [
        (kind, share, speed, mode)
        for kind in ("exact", "chunks") for share in (0.5, 1.0) for speed in (7.0, 1e6) for mode in cake.MODES
    ]  # fmt: skip
    for row in rows:
        assert list(row) == [
            "mode", "engine", "kind", "tokens", "bandwidth_gbps", "utilisation", "bits", "chunk", "seconds",
            "efficiency", "computed_share", "peak_kv_mb",
        ]  # fmt: skip
        assert (row["tokens"], row["bits"], row["chunk"]) == (300, 16, 60)
        assert (row["efficiency"] is None) == (row["mode"] != "cake")
        assert row["computed_share"] == {"load": 0.0, "compute": 1.0}.get(str(row["mode"]), row["computed_share"])


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_a_share_of_the_device_is_one(text: str) -> None:
    from benchmarks.cake import parse_utilisation

    with pytest.raises(ConfigError):
        parse_utilisation(text, "utilisations")
