from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragcache.host import private_file, private_folder


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    private_folder(tmp_path / "a" / "b" / "c")
    private_folder(tmp_path / "a" / "b" / "c")
    private_file(tmp_path / "a" / "file")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c", "a/file")] == [0o700, 0o700, 0o700, 0o600]


def test_what_is_there_keeps_its_modes(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(0o775)
    (tmp_path / "shared" / "file").write_text("words")
    (tmp_path / "shared" / "file").chmod(0o664)
    private_folder(tmp_path / "shared" / "mine")
    private_folder(tmp_path / "shared")
    private_file(tmp_path / "shared" / "file")
    assert [mode(tmp_path / "shared"), mode(tmp_path / "shared" / "mine")] == [0o775, 0o700]
    assert mode(tmp_path / "shared" / "file") == 0o664
    assert (tmp_path / "shared" / "file").read_text() == "words"


def test_a_link_to_no_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    private_file(tmp_path / "link")
    assert mode(tmp_path / "file") == 0o600


def test_locks_on_a_file_that_is_there_stay(tmp_path: Path) -> None:
    """To close any descriptor of a file gives up all locks that its process holds on it."""
    path = tmp_path / "file"
    other = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        private_file(path)
        asked = subprocess.run([sys.executable, "-c", other, str(path)], stderr=subprocess.PIPE, check=False)
    assert b"BlockingIOError" in asked.stderr


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    with pytest.raises(OSError, match="file"):
        private_folder(tmp_path / "file" / "below")
