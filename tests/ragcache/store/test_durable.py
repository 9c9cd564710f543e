"""Races of a writer with those who tidy up, made to happen."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from ragcache.store.layout import sweep, written_beside

PARTS = [memoryview(b"abc"), memoryview(b"def")]


def write(target: Path) -> None:
    with written_beside(target, PARTS) as temporary:
        temporary.replace(target)


def test_what_is_not_renamed_is_removed(tmp_path: Path) -> None:
    with written_beside(tmp_path / "a" / "x.kv", PARTS) as temporary:
        assert temporary.read_bytes() == b"abcdef"
        assert temporary.parent == tmp_path / "a"
        assert sweep([temporary]) == 0  # its writer lives
    assert list((tmp_path / "a").iterdir()) == []


def test_the_folder_is_removed_before_the_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, mkdir = tmp_path / "a" / "x.kv", Path.mkdir
    raced: list[Path] = []

    def mkdir_then_lose(path: Path, **options: Any) -> None:
        mkdir(path, **options)
        if not raced:
            raced.append(path)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir_then_lose)
    write(target)
    assert raced
    assert target.read_bytes() == b"abcdef"


def test_the_file_is_swept_before_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, flock = tmp_path / "x.kv", fcntl.flock
    swept: list[Path] = []

    def sweep_then_lock(fd: int, operation: int) -> None:
        if not swept:
            swept.extend(tmp_path.glob("*.tmp"))
            swept[0].unlink()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_then_lock)
    write(target)
    assert swept
    assert target.read_bytes() == b"abcdef"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("level", ["a", "a/b"])
@pytest.mark.parametrize("link", [False, True])
def test_what_stands_where_a_folder_should_is_said(tmp_path: Path, level: str, link: bool) -> None:
    (tmp_path / level).parent.mkdir(exist_ok=True)
    if link:
        (tmp_path / level).symlink_to("/nowhere/x")
    else:
        (tmp_path / level).write_text("")
    with pytest.raises(OSError, match=f"{level}'"):
        write(tmp_path / "a" / "b" / "x.kv")


def test_leftovers_are_locked_for_writing_or_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS keeps no exclusive lock for a descriptor that only reads."""
    flock = fcntl.flock

    def nfs(fd: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", nfs)
    half, folder = tmp_path / "x.tmp", tmp_path / "y.tmp"
    half.write_bytes(b"half")
    folder.mkdir()  # as one that may not be opened
    assert sweep([folder, half, tmp_path / "gone.tmp"]) == 1
    assert list(tmp_path.iterdir()) == [folder]
