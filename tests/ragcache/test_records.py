from __future__ import annotations

import os
from pathlib import Path

import pytest

from ragcache.records import MOST, Records


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_what_was_written_is_read(records: Records, model: Path) -> None:
    assert records.read("a", model) is None
    records.write("a", model, {"number": 0.1, "texts": ["ä"]}, records.basis(model), dtype="x")
    assert records.read("a", model, dtype="x") == {"number": 0.1, "texts": ["ä"]}
    assert records.read("a", model) is None
    assert records.read("b", model, dtype="x") is None
    assert list(records.root.glob("*.tmp")) == []


def test_it_is_of_these_files(records: Records, model: Path) -> None:
    records.write("a", model, {}, records.basis(model))
    (model / "more.json").write_text("")
    assert records.read("a", model) is None
    (model / "more.json").unlink()
    assert records.read("a", model) == {}
    text = (model / "config.json").read_text()
    (model / "config.json").unlink()
    (model / "config.json").write_text(text)
    assert records.read("a", model) is None


def test_it_is_of_the_files_that_were_read(records: Records, model: Path) -> None:
    basis = records.basis(model)
    (model / "config.json").write_text('{"changed": "meanwhile"}')
    records.write("a", model, {}, basis)
    assert records.read("a", model) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"basis": []}'])
def test_a_broken_one_is_as_good_as_none(records: Records, model: Path, content: str) -> None:
    records.write("a", model, {}, records.basis(model))
    (path,) = records.root.iterdir()
    path.write_text(content)
    assert records.read("a", model) is None


def test_only_so_many_are_kept(records: Records, model: Path) -> None:
    for number in range(MOST + 5):
        records.write("a", model, {}, records.basis(model), number=str(number))
    assert len(list(records.root.iterdir())) == MOST
    assert records.read("a", model, number=str(MOST + 4)) == {}


def test_a_kind_of_which_there_are_many_drives_out_no_other(records: Records, model: Path) -> None:
    records.write("identity", model, {}, records.basis(model))
    for number in range(MOST + 5):
        records.write("rates", model, {}, records.basis(model), host=str(number))
    assert records.read("identity", model) == {}
    assert len(list(records.root.iterdir())) == 1 + MOST


@pytest.mark.parametrize("name", ["a-k3x9.tmp", "tmpk3x9.tmp"])
def test_what_a_killed_process_has_left_goes_with_time(records: Records, model: Path, name: str) -> None:
    """Also one of an earlier version, whose name tells no kind."""
    records.root.mkdir()
    (records.root / name).write_text("{")
    os.utime(records.root / name, (1.0, 1.0))
    for number in range(MOST):
        records.write("a", model, {}, records.basis(model), number=str(number))
    assert not (records.root / name).exists()
    assert len(list(records.root.iterdir())) == MOST


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path, model: Path) -> None:
    (tmp_path / "file").write_text("")
    records = Records(tmp_path / "file")
    records.write("a", model, {}, records.basis(model))
    assert records.read("a", model) is None
