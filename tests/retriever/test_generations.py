"""The swap of files, on plain files: what is torn, foreign or gone is never handed out."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from retriever.generations import Distrusted, Generations, Manifest
from retriever.source import Position


def writes(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text)

    return write


def read(path: Path, manifest: Manifest) -> str:
    return path.read_text()


@pytest.fixture
def files(tmp_path: Path) -> Generations:
    return Generations(tmp_path / "index", "vectors", "faiss")


def publish(files: Generations, text: str, high: int, **settings: bytes | None) -> bool:
    return files.publish("model", Position(high, 0, high), {"note": 1}, writes(text), **settings)


def names(files: Generations) -> list[str]:
    return sorted(path.name for path in files.folder.iterdir() if not path.name.startswith("."))


def test_nothing_is_there_at_first(files: Generations) -> None:
    assert files.load("model", read) is None
    assert not files.exists()
    assert not files.folder.exists()


def test_what_was_published_is_read(files: Generations) -> None:
    assert publish(files, "one", 1)
    manifests: list[Manifest] = []
    assert files.load("model", lambda path, manifest: manifests.append(manifest) or path.read_text()) == "one"
    assert manifests[0].position == Position(1, 0, 1)
    assert manifests[0].details == {"note": 1}


def test_a_new_generation_takes_the_place_of_the_old(files: Generations) -> None:
    publish(files, "one", 1)
    publish(files, "two", 2)
    assert files.load("model", read) == "two"
    assert names(files) == ["vectors.2.faiss", "vectors.json"]


def test_what_is_further_already_stays(files: Generations) -> None:
    publish(files, "two", 2)
    assert not publish(files, "one", 1)
    assert files.load("model", read) == "two"
    mark = files.mark()
    assert publish(files, "again", 1, over=mark)
    assert not publish(files, "once more", 1, over=mark), "that is gone"
    assert files.load("model", read) == "again"


def test_files_of_other_indexes_and_leftovers(files: Generations) -> None:
    files.folder.mkdir()
    for name in ("keywords.3.bm25", "vectors.json.bak", "vectors.x.faiss"):
        (files.folder / name).write_text("another's")
    (files.folder / "vectors.7.faiss.new").write_text("of a writer that died")
    (files.folder / "vectors.5.faiss").write_text("never named by a manifest")
    publish(files, "one", 1)
    kept = ["keywords.3.bm25", "vectors.8.faiss", "vectors.json", "vectors.json.bak", "vectors.x.faiss"]
    assert names(files) == kept


def test_a_write_that_fails_leaves_the_old(files: Generations) -> None:
    publish(files, "one", 1)

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        files.publish("model", Position(2, 0, 2), {}, fail)
    assert files.load("model", read) == "one"
    assert names(files) == ["vectors.1.faiss", "vectors.json"]


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda f: (f / "vectors.1.faiss").write_text("on"), "2 bytes instead of 3"),
    "longer": (lambda f: (f / "vectors.1.faiss").write_text("one more"), "8 bytes instead of 3"),
    "flipped": (lambda f: (f / "vectors.1.faiss").write_text("onf"), "another checksum"),
    "gone": (lambda f: (f / "vectors.1.faiss").unlink(), "a file that is not there"),
    "a folder": (lambda f: ((f / "vectors.1.faiss").unlink(), (f / "vectors.1.faiss").mkdir()), "Is a directory"),
    "no json": (lambda f: (f / "vectors.json").write_text("{"), "cannot be read"),
    "no text": (lambda f: (f / "vectors.json").write_bytes(b"\xff\xfe\x00"), "no text"),
    "empty": (lambda f: (f / "vectors.json").write_text(""), "cannot be read"),
    "a list": (lambda f: (f / "vectors.json").write_text("[]"), "cannot be read"),
    "other keys": (lambda f: (f / "vectors.json").write_text('{"a": 1}'), "cannot be read"),
    "other schema": (lambda f: change(f / "vectors.json", schema=99), "schema 99"),
    "other model": (lambda f: change(f / "vectors.json", identity="bert"), "it holds bert, not model"),
    "elsewhere": (lambda f: change(f / "vectors.json", file="../vectors.1.faiss"), "not in its folder"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_told_and_not_read(
    files: Generations, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(files, "one", 1)
    spoil, told = DAMAGE[damage]
    spoil(files.folder)
    with caplog.at_level(logging.WARNING):
        assert files.load("model", read) is None
    assert told in caplog.text
    assert files.exists()


@pytest.mark.parametrize("damage", [name for name in DAMAGE if name != "a folder"])
def test_what_is_damaged_is_replaced(files: Generations, damage: str) -> None:
    publish(files, "one", 1)
    DAMAGE[damage][0](files.folder)
    assert publish(files, "new", 1, over=files.mark())
    assert files.load("model", read) == "new"


def test_what_the_reader_distrusts_is_not_handed_out(files: Generations) -> None:
    publish(files, "one", 1)

    def refuse(path: Path, manifest: Manifest) -> str:
        raise Distrusted("it looks strange")

    assert files.load("model", refuse) is None


def test_a_file_swept_while_it_is_opened_is_looked_for_again(files: Generations) -> None:
    publish(files, "one", 1)
    seen: list[str] = []

    def read_late(path: Path, manifest: Manifest) -> str:
        if not seen:
            publish(files, "two", 2)  # which removes the file of generation 1
        seen.append(path.name)
        return path.read_text()

    assert files.load("model", read_late) == "two"
    assert seen == ["vectors.1.faiss", "vectors.2.faiss"]


def test_another_writer_is_not_waited_for_unless_asked(files: Generations) -> None:
    files.folder.mkdir()
    with FileLock(files.folder / ".vectors.lock"):
        assert not files.publish("model", Position(1, 0, 1), {}, writes("one"), wait=0)
    assert files.publish("model", Position(1, 0, 1), {}, writes("one"), wait=0)


def test_a_file_is_on_the_disk_before_it_takes_its_name(files: Generations, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut a name must not stand for an empty file."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def watched_fsync(fd: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{fd}').resolve().name}")
        fsync(fd)

    def watched_replace(path: Path, target: Path) -> Path:
        steps.append(f"name {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    publish(files, "one", 1)
    assert steps == [
        "sync vectors.1.faiss.new",
        "name vectors.1.faiss",
        "sync index",
        "sync vectors.json.new",
        "name vectors.json",
        "sync index",
    ]
