from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.models.loading import TorchModel
from app.samples import read_samples
from app.settings import load_settings
from benchmarks.cake import SHAPE_NAMES, CakeBenchOptions, parse_utilisation
from benchmarks.cake import measurement as cake
from benchmarks.cake.conditions import Conditions, QueuedLoader
from benchmarks.cake.costs import BlockCosts
from benchmarks.cake.prompt import MODES
from benchmarks.cake.shapes import KV_HEADS, shaped
from benchmarks.choices import parse_linker
from ragcache.errors import ConfigError
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.throttle import Shares
from ragcache.store import open_store

TEXTS = list(read_samples().values())
FIELDS = [
    "mode", "engine", "kind", "tokens", "bandwidth_gbps", "utilisation", "bits", "chunk", "seconds", "efficiency",
    "computed_share", "peak_kv_mb", "preload", "trace", "shape", "codec", "over_load", "over_compute",
    "against_better", "against_better_high", "against_ram", "against_ram_high",
]  # fmt: skip


def asked(**given: Any) -> CakeBenchOptions:
    made = {"tokens": (300,), "linker": parse_linker("auto", ""), "chunk_tokens": (60,), "rounds": 1,
            "bandwidths": (1e6,), "utilisations": (1.0,), "kinds": ("exact",)}  # fmt: skip
    return CakeBenchOptions(**{**made, **given})


def test_every_mode_of_every_case_is_told(parts: TorchModel, tmp_path: Path) -> None:
    out, plot = tmp_path / "cake.json", tmp_path / "plots" / "cake.svg"
    options = asked(bandwidths=(7.0, 1e6), utilisations=(0.5, 1.0), kinds=("exact", "chunks"), plot=plot)
    rows = cake.run(parts, TEXTS, options, out)
    assert json.loads(out.read_text())["rows"] == rows
    assert [(row["kind"], row["utilisation"], row["bandwidth_gbps"], row["mode"]) for row in rows] == [
        (kind, share, speed, mode)
        for kind in ("exact", "chunks") for share in (0.5, 1.0) for speed in (7.0, 1e6) for mode in MODES
    ]  # fmt: skip
    for row in rows:
        assert list(row) == FIELDS
        assert (row["tokens"], row["chunk"], row["preload"], row["trace"]) == (300, 60, "sync", None)
        is_cake = row["mode"] == "cake"
        for name in ("efficiency", "over_load", "over_compute", "against_better", "against_better_high"):
            assert (row[name] is not None) == is_cake
        assert row["computed_share"] == {"load": 0.0, "compute": 1.0}.get(str(row["mode"]), row["computed_share"])
        buffer = 300 * parts.engine.spec.token_bytes / 1e6
        peak = float(row["peak_kv_mb"] or 0)
        assert {"compute": peak == buffer, "load": buffer < peak <= 2 * buffer}.get(str(row["mode"]), peak >= buffer)
    assert plot.read_text().count('font-weight="bold">') >= 8, "a panel for each case"


def test_bits_are_those_of_the_files(parts: TorchModel) -> None:
    options = asked(codecs=("raw", "bf16", "int8", "int4"), kinds=("chunks",), chunk_tokens=(60, 120))
    rows = [row for row in cake.run(parts, TEXTS, options, None) if row["mode"] == "load"]
    bits = {(row["chunk"], row["codec"]): float(row["bits"] or 0) for row in rows}
    assert len(bits) == 8
    for chunk in (60, 120):
        assert bits[chunk, "raw"] == 32
        # What opens a document is kept as it is in every codec: that share of the tokens has 32 bits.
        kept = (bits[chunk, "bf16"] - 16) / 16
        assert 0 < kept < 0.7
        for codec, least, most in (("int8", 8, 12), ("int4", 4, 8)):  # tiny heads: scales weigh more
            assert least < (bits[chunk, codec] - 32 * kept) / (1 - kept) < most


def test_shapes_have_the_heads_that_they_are_named_after(parts: TorchModel) -> None:
    assert ("model", *KV_HEADS) == SHAPE_NAMES
    made = {name: shaped(parts, name, 300, 0).engine.spec for name in ("model", "mha", "gqa")}
    assert made["model"] is parts.engine.spec
    assert made["mha"].token_bytes == 4 * made["gqa"].token_bytes
    assert made["mha"].fingerprint != made["gqa"].fingerprint
    rows = cake.run(parts, TEXTS, asked(shapes=("gqa",), bandwidths=(32.0,)), None)
    assert [(row["shape"], row["mode"]) for row in rows] == [("gqa", mode) for mode in MODES]


def test_a_trace_is_another_case(parts: TorchModel) -> None:
    rows = cake.run(parts, TEXTS, asked(traces=2), None)
    assert [(row["trace"], row["mode"]) for row in rows] == [(trace, mode) for trace in (1, 2) for mode in MODES]
    assert all(0 < float(row["bandwidth_gbps"] or 0) < 25 and 0 < float(row["utilisation"] or 0) < 1 for row in rows)
    assert Conditions.drawn(1, 1.0, 0) == Conditions.drawn(1, 1.0, 0) != Conditions.drawn(2, 1.0, 0)


def test_what_is_loaded_while_a_request_waits_does_not_count(parts: TorchModel) -> None:
    options = asked(preload=("sync", "async"), wait=3.0, bandwidths=(0.3,), kinds=("chunks",))
    rows = {(row["preload"], row["mode"]): row for row in cake.run(parts, TEXTS, options, None)}
    assert list(rows) == [*(("sync", mode) for mode in MODES), ("async", "cake"), ("async", "load")]
    seconds = {place: float(row["seconds"] or 0) for place, row in rows.items()}
    assert seconds["async", "load"] < seconds["sync", "load"]


def test_layers_may_come_while_those_below_are_computed_over(parts: TorchModel) -> None:
    options = asked(preload=("sync", "layer"), bandwidths=(7.0, 1e6), kinds=("chunks",))
    rows = cake.run(parts, TEXTS, options, None)
    per_speed = [*(("sync", mode) for mode in MODES), ("layer", "cake"), ("layer", "load")]
    assert [(row["preload"], row["mode"]) for row in rows] == 2 * per_speed
    assert [row["computed_share"] for row in rows if (row["preload"], row["mode"]) == ("layer", "load")] == [0.0, 0.0]


def test_a_real_disk_is_set_against_ram(parts: TorchModel) -> None:
    rows = cake.run(parts, TEXTS, asked(disk="real"), None)
    assert [row["mode"] for row in rows] == [*MODES, "ram"]
    assert {row["bandwidth_gbps"] for row in rows} == {None}
    assert float(rows[0]["against_ram_high"] or 0) >= float(rows[0]["against_ram"] or 0) > 0


@pytest.mark.parametrize("given", [{"codecs": ("int2",)}, {"disk": "real", "traces": 1},
                                   {"disk": "real", "preload": ("async",)},
                                   {"disk": "real", "preload": ("layer",)},
                                   {"traces": 1, "preload": ("layer",)},
                                   {"utilisations": (0.5, 1.0), "preload": ("layer",)}])  # fmt: skip
def test_what_cannot_be_measured_is_said_first(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        cake.main(load_settings(None, model=str(tmp_path / "none")), asked(**given), tmp_path / "out.json")


def test_a_plot_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--plot"):
        cake.write_plot(tmp_path / "file" / "plot.svg", {})


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_a_share_of_the_device_is_one(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_utilisation(text, "utilisations")


def test_the_best_meeting_point_is_that_of_the_slowest_side() -> None:
    costs = BlockCosts(computes=(1.0, 1.0, 2.0), nbytes=(10, 10, 10), linked=0.5, plain=0.1)
    steady = Conditions.steady(7.0, 1.0)
    assert costs.optimum(steady, 10.0) == pytest.approx(1.0 + 1.0 + 0.1 * 2 / 3 + 0.5 / 3), "two computed, one loaded"
    assert costs.optimum(steady, 1e-9) == pytest.approx(4.1), "all computed"
    assert costs.optimum(steady, 1e9) == pytest.approx(0.5), "all loaded"
    assert costs.optimum(Conditions.steady(7.0, 0.5), 1e-9) == pytest.approx(8.2), "half of the device"
    assert costs.optimum(steady, 10.0, wait=9.0) == pytest.approx(0.5), "all came meanwhile"


def test_a_schedule_goes_on_from_its_first_step() -> None:
    schedule = Shares([(1.0, 0.5), (1.0, 0.0), (2.0, 1.0)])
    assert schedule.mean == pytest.approx(2.5 / 4)
    moments = {(0.0, 0.25): 0.5, (0.0, 0.5): 1.0, (0.0, 0.75): 2.25, (1.5, 1.0): 3.0, (0.0, 2.75): 4.5, (4.0, 0.5): 5.0}
    for (moment, seconds), until in moments.items():
        assert schedule.after(moment, seconds) == pytest.approx(until), (moment, seconds)
    assert Shares.steady(0.25).after(3.0, 1.0) == pytest.approx(7.0)


def test_a_queue_gives_up_what_is_not_wanted_after_all(tmp_path: Path) -> None:
    store = open_store(tmp_path, ram_bytes=0, codec="raw")
    begun: list[Any] = []

    class Noted(SequentialLoader):
        def begin(self, *given: Any) -> Any:
            begun.append(super().begin(*given))
            return begun[-1]

    queued = QueuedLoader(Noted())
    queued.arrived((), store)
    assert queued.begin((), store) is begun[0], "what is on its way"
    assert queued.begin((), store) is begun[1], "once"
    queued.arrived((), store)
    other: Iterator[Any] = iter(())
    assert queued.begin(list(other), store) is begun[3], "something else"
