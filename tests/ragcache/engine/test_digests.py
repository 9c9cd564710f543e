"""Checksums that are remembered: never those of a file that has changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ragcache.engine import fingerprint
from ragcache.engine.fingerprint import KEPT, Digests
from tests.waiting import wait_until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"first")
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files were read, per reading."""
    counts: list[int] = []
    digest = fingerprint._digest

    def counted(paths: list[Path]) -> str:
        counts.append(len(paths))
        return digest(paths)

    monkeypatch.setattr(fingerprint, "_digest", counted)
    return counts


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every file had been written long ago."""
    monkeypatch.setattr(fingerprint, "SETTLED_NS", -(10**18))


def test_a_file_is_read_once(tmp_path: Path, file: Path, read: list[int], settled: None) -> None:
    first = Digests(tmp_path / "digests.json").of([file])
    assert Digests(tmp_path / "digests.json").of([file]) == first
    assert len(read) == 1


def test_a_file_that_was_just_written_is_not_remembered(
    tmp_path: Path, file: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change within the same tick of the file system's clock would go unseen."""
    monkeypatch.setattr(fingerprint, "SETTLED_NS", 10**18)  # however long this takes
    for _ in range(2):
        Digests(tmp_path / "digests.json").of([file])
    assert len(read) == 2


def test_a_file_that_changed_has_another_digest(tmp_path: Path, file: Path, settled: None) -> None:
    """Also where its size and its time of change are made to be the old ones."""
    known, times = Digests(tmp_path / "digests.json"), file.stat()
    first = known.of([file])

    def ticked() -> bool:
        """The file system's clock."""
        file.write_bytes(b"other")
        return file.stat().st_ctime_ns != times.st_ctime_ns

    wait_until(ticked, 10)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    assert known.of([file]) != first
    file.write_bytes(b"first")
    assert known.of([file]) == first


def test_another_file_with_the_same_times_has_its_own(tmp_path: Path, file: Path, settled: None) -> None:
    known, first = Digests(tmp_path / "digests.json"), file.stat()
    digest = known.of([file])
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    other.write_bytes(b"other")
    os.utime(other, ns=(first.st_atime_ns, first.st_mtime_ns))
    assert known.of([other]) != digest


@pytest.mark.parametrize("content", ["{", "[]", "3", ""])
def test_a_broken_file_of_digests_is_written_anew(
    tmp_path: Path, file: Path, read: list[int], settled: None, content: str
) -> None:
    (tmp_path / "digests.json").write_text(content)
    for _ in range(2):
        Digests(tmp_path / "digests.json").of([file])
    assert len(read) == 1


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, file: Path, settled: None) -> None:
    (tmp_path / "taken").write_text("")
    assert Digests(tmp_path / "taken" / "digests.json").of([file]) == Digests(None).of([file])


def test_only_so_many_are_kept(tmp_path: Path, settled: None) -> None:
    known = Digests(tmp_path / "digests.json")
    for number in range(KEPT + 5):
        path = tmp_path / f"{number}.safetensors"
        path.write_text(str(number))
        known.of([path])
    assert len(json.loads((tmp_path / "digests.json").read_text())) == KEPT
    assert sorted(path.suffix for path in tmp_path.iterdir()).count(".json") == 1, "no temporary files are left"
