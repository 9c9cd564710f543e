from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.output import publish, render, shown
from ragcache.errors import ConfigError

ROWS = [{"case": "a", "n": 12, "s": 0.123456, "extra": 1}, {"case": "bcd", "n": 3, "s": None, "extra": 2}]


def test_a_table_lines_up() -> None:
    assert render(ROWS, hidden=("extra",)).splitlines() == [
        "case   n      s",
        "----  --  -----",
        "a     12  0.123",
        "bcd    3      -",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00012345, "0.000123"),
        (12345.6, "12346"),
        (12.34, "12.3"),
        (1024, "1024"),
        (None, "-"),
        ("x", "x"),
    ],
)
def test_three_digits_are_shown(value: float | None, text: str) -> None:
    assert shown(value) == text


def test_figures_go_to_the_file_and_the_table_to_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/some/where/ragcache", "bench", "ttft"])
    publish({"seed": 0}, ROWS, tmp_path / "new" / "out.json", hidden=("n",))
    document = json.loads((tmp_path / "new" / "out.json").read_text())
    assert set(document) == {"command", "versions", "settings", "rows"}
    assert document["command"] == "ragcache bench ttft"
    assert document["rows"] == ROWS
    assert {"python", "torch", "ragcache-kv"} <= set(document["versions"])
    assert capsys.readouterr().out.split("\n")[0].split() == ["case", "s", "extra"]


def test_a_place_that_cannot_be_written_is_told_behind_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write"):
        publish({}, ROWS, tmp_path / "file" / "out.json")
    assert capsys.readouterr().out.startswith("case")


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_number_for_is_null(
    strange: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    publish({}, [{"case": "a", "error": strange}], out, {"summary": {"worst": (strange, 1.0)}})
    document = json.loads(out.read_text())
    assert document["rows"] == [{"case": "a", "error": None}]
    assert document["summary"] == {"worst": [None, 1.0]}
    assert str(strange) in capsys.readouterr().out
