from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.models.loading import TorchModel
from app.samples import read_samples
from app.settings import load_settings
from benchmarks.caches import forget_pages
from benchmarks.rates import RatesBenchOptions
from benchmarks.rates import measurement as rates
from ragcache.errors import ConfigError

TEXTS = list(read_samples().values())


def test_each_tier_and_codec_and_each_step_has_its_rate(parts: TorchModel, tmp_path: Path) -> None:
    out = tmp_path / "rates.json"
    options = RatesBenchOptions(tokens=(64, 128), context=300, step=128, rounds=1)
    rows = rates.run(parts, TEXTS, options, out)
    assert json.loads(out.read_text())["rows"] == rows
    loads = [row for row in rows if row["tier"] != rates.ENGINE]
    assert [(row["tokens"], row["tier"], row["codec"]) for row in loads] == [
        (tokens, tier, codec)
        for tokens in (64, 128) for tier in ("ram", "disk", "cached")
        for codec in ((None,) if tier == "ram" else ("bf16", "int8", "int4"))
    ]  # fmt: skip
    sizes = {(row["tier"], row["codec"], row["tokens"]): float(row["mb"] or 0) for row in loads}
    assert sizes["disk", "int4", 128] < sizes["disk", "int8", 128] < sizes["disk", "bf16", 128]
    assert sizes["disk", "bf16", 64] < sizes["disk", "bf16", 128] < sizes["ram", None, 128], "the engine has 32 bits"
    steps = [row for row in rows if row["tier"] == rates.ENGINE]
    assert [(row["position"], row["tokens"]) for row in steps] == [(0, 128), (128, 128), (256, 44)]
    for row in rows:
        seconds, kv = float(row["seconds"] or 0), int(row["tokens"] or 0) * parts.engine.spec.token_bytes / 1e6
        assert float(row["mb_per_s"] or 0) == pytest.approx(float(row["mb"] or 0) / seconds)
        assert float(row["kv_mb_per_s"] or 0) == pytest.approx(kv / seconds)


@pytest.mark.parametrize("asked", [{"context": 10**6}, {"tokens": (10**6,)}])
def test_more_than_the_context_is_refused(parts: TorchModel, asked: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="--context"):
        rates.run(parts, TEXTS, RatesBenchOptions(**asked), None)  # type: ignore[arg-type]


def test_a_codec_that_nobody_knows_is_said_first(tmp_path: Path) -> None:
    settings = load_settings(None, model=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="unknown codec 'int2'"):
        rates.main(settings, RatesBenchOptions(codecs=("int2",)), tmp_path / "out.json")


def test_files_are_as_they_were_when_their_pages_are_gone(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"kv")
    forget_pages(tmp_path)
    assert (tmp_path / "folder" / "file").read_bytes() == b"kv"
