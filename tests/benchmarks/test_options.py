"""Every benchmark's options, as flags and as the settings in its JSON."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import cli
from benchmarks.cli import BENCHMARKS, app
from benchmarks.options import BenchOptions
from benchmarks.quality import SHAPE_NAMES, QualityBenchOptions
from benchmarks.quality.baselines import BASELINES
from ragcache.errors import ConfigError
from ragcache.linking import make_linker


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_field_is_a_flag_with_its_help_and_its_default(name: str) -> None:
    kind, command = BENCHMARKS[name], typer.main.get_command(app).commands[name]
    flags = {flag.name: flag for flag in command.params}
    assert set(flags) == {*(one.name for one in fields(kind)), "json", *kind.of_settings}
    assert all(flag.help for flag in flags.values())
    assert command.help == kind.__doc__
    assert [flag.required for flag in command.params if flag.required] == [True] * (
        sum(one.metadata["default"] is MISSING for one in fields(kind))
    )


@pytest.mark.parametrize("kind", BENCHMARKS.values())
def test_what_is_told_are_the_defaults_as_they_are_read(kind: type[BenchOptions]) -> None:
    required = {one.name: Path("data") for one in fields(kind) if one.metadata["default"] is MISSING}
    made = kind(**required)
    told = {one.name for one in fields(kind) if one.metadata["told"]}
    assert set(made.settings()) == told
    assert not any(isinstance(value, Path) for value in made.settings().values()), "no path of this machine"
    for one in fields(kind):
        if one.metadata["read"]:
            assert getattr(made, one.name) == one.metadata["read"](one.metadata["default"], "")


def test_a_linker_is_told_with_all_its_settings() -> None:
    (told,) = (
        QualityBenchOptions({"query:first=4": make_linker("query:first=4")}, data=Path()).settings()["linkers"].values()
    )
    assert told == repr(make_linker("query:first=4"))
    assert "ratio=" in told


def test_values_are_read_and_handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[BenchOptions] = []

    class Measurement:
        @staticmethod
        def main(settings: object, options: BenchOptions, out: Path) -> None:
            given.append(options)
            assert out == tmp_path / "out.json"

    monkeypatch.setattr(cli, "import_module", lambda name: Measurement)
    words = ["--data", str(tmp_path), "--context", "alone", "--top-k", "2", "--resume", "--json"]
    assert (
        CliRunner().invoke(app, ["quality", *words, str(tmp_path / "out.json")], catch_exceptions=False).exit_code == 0
    )
    (made,) = given
    assert made == QualityBenchOptions(contexts=("alone",), top_k=2, data=tmp_path, resume=True)


def test_a_wrong_value_is_told_by_its_flag(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown context 'lonely': choose from alone, document"):
        CliRunner().invoke(app, ["quality", "--data", str(tmp_path), "--context", "lonely"], catch_exceptions=False)
    with pytest.raises(ConfigError, match="unknown splitter 'clever': choose from auto, fixed, semantic, structure"):
        CliRunner().invoke(app, ["quality", "--data", str(tmp_path), "--splitter", "clever"], catch_exceptions=False)
    assert CliRunner().invoke(app, ["quality", "--data", str(tmp_path), "--top-k", "0"]).exit_code == 2


@pytest.mark.parametrize("name", [*BASELINES, *SHAPE_NAMES])
def test_what_quality_measures_is_in_the_docs(name: str) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    assert f"\n| `{name}` |" in docs[docs.index("## Baselines") :]
