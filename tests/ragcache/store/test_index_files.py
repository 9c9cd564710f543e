"""What an index says of the files that lie there, whoever has put them there or taken them away."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import CorruptEntry
from ragcache.store import DiskTier, index_making
from ragcache.store.codec import open_codec
from ragcache.store.entry import pack
from ragcache.store.frame import read_fields
from ragcache.store.index import Change, Contents
from ragcache.store.layout import FolderLayout
from ragcache.types import Lineage
from tests.ragcache.store.folders import VARIANTS, filled, kept, listed, opened, told

WHOSE = "SELECT digest, fingerprint, system, context, history, chunk, border, codec FROM entries ORDER BY digest"


def path_of(root: Path, place: int) -> Path:
    return FolderLayout(root).entry(VARIANTS[place].key)


@pytest.mark.parametrize("sound", [True, False])
def test_a_copy_in_another_place_takes_no_sound_entry_with_it(root: Path, sound: bool) -> None:
    """In the first engine's folder by name, so that it is met before the sound one."""
    store = filled(root)
    path = path_of(root, 0)
    copy = root / "a-copy" / Path(*path.parts[-3:])
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes() if sound else b"bad")
    store._index.renew()
    assert kept(store) == [0, 1, 2]
    assert len(store.verify()) == 1
    assert kept(store) == [0, 1, 2]
    store.check_integrity()


def test_a_file_that_cannot_be_read_keeps_nobody_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row is whole once it can."""
    filled(root)
    rows = told(root, WHOSE)
    bad, read = str(path_of(root, 1)), index_making.read_fields

    def failing(path: Path) -> Any:
        if str(path) == bad:
            raise OSError(5, "the disk fails", bad)
        return read(path)

    monkeypatch.setattr(index_making, "read_fields", failing)
    (root / "index.sqlite").unlink()
    store = opened(root)
    assert store.stats()[0].entries == 3
    assert {engine for (engine,) in told(root, "SELECT engine FROM entries WHERE chunk IS NULL")} == {"engine-a"}
    assert kept(store) == [0, 1, 2]
    store._index.renew()
    assert told(root, "SELECT count(*) FROM entries WHERE chunk IS NULL") == [(1,)]
    monkeypatch.undo()
    store._index.renew()
    assert told(root, WHOSE) == rows


def test_what_is_no_entry_by_its_name_is_left_alone(root: Path) -> None:
    filled(root)
    folder = path_of(root, 0).parent
    odd = [folder / "two words.kv", folder / "a.b.kv", folder / "nowhere.kv", folder / "folder.kv"]
    for path in odd[:2]:
        path.write_bytes(b"not ours")
    odd[2].symlink_to(odd[2])
    odd[3].mkdir()
    (root / "index.sqlite").unlink()
    store = opened(root)
    assert (store.stats()[0].entries, kept(store)) == (3, [0, 1, 2])
    for path in odd[:3]:
        path.unlink()
    odd[3].rmdir()


def replaced_by_one_who_was_killed(root: Path) -> None:
    """By a file that lost something, before the index knows it."""
    path = path_of(root, 0)
    beside = root / "beside"
    beside.write_bytes(b"".join(pack(VARIANTS[0], open_codec("int8"))[1]))
    beside.replace(path)


def test_a_replaced_file_is_told_as_it_is_once_it_was_read(root: Path) -> None:
    store, key = filled(root), VARIANTS[0].key
    assert [info.lossless for info in store.variants(key.family)] == [True]
    replaced_by_one_who_was_killed(root)
    assert store.get(key) is not None
    assert [info.lossless for info in store.variants(key.family)] == [False]
    store.verify()


@pytest.mark.parametrize("beside", [lambda other: other._index.renew(), lambda other: other.put(VARIANTS[0])])
def test_a_file_is_told_as_it_is_whatever_others_do_before_it_is_there(
    root: Path, beside: Callable[[DiskTier], None]
) -> None:
    store, other = DiskTier(root, None, "int8"), opened(root)
    other.put(VARIANTS[0])
    real, turns = store._index.change, iter([other])

    def changing(work: Callable[[Change], Any], reserve: bool = True) -> Any:
        done = real(work, reserve)
        for one in turns:
            beside(one)
        return done

    store._index.change = changing  # type: ignore[method-assign]
    store.put(VARIANTS[0])
    assert told(root, "SELECT codec, lost, nbytes, coming FROM entries") == [
        ("int8-2", '["int8"]', path_of(root, 0).stat().st_size, None)
    ]


@pytest.mark.parametrize("came", [True, False])
def test_what_was_announced_by_one_who_was_killed_is_told_as_it_is(root: Path, came: bool) -> None:
    store, key = filled(root), VARIANTS[0].key

    def announce(change: Change) -> None:
        change.announce(Contents(key, "int8", Lineage((), lost=("int8",)), 10), f"{key.digest}.1.ab.tmp")

    store._index.change(announce)
    if came:
        replaced_by_one_who_was_killed(root)
    store.pin(VARIANTS[1].key)
    (row,) = told(root, f"SELECT codec, lost, seen, nbytes, coming FROM entries WHERE digest = '{key.digest}'")
    size = path_of(root, 0).stat().st_size
    assert row == (("int8-2", '["int8"]', None, size, None) if came else ("raw", "[]", None, size, None))


def test_a_pin_of_before_the_index_comes_back_no_more(root: Path) -> None:
    """Where it was taken over by one who was killed before its file was gone."""
    store = filled(root)
    path_of(root, 0).with_suffix(".pin").touch()
    store._index.renew()
    assert told(root, "SELECT * FROM pins") == []
    assert list(root.rglob("*.pin")) == []


def test_what_an_older_version_put_beside_is_found(root: Path, tmp_path: Path) -> None:
    filled(root)
    filled(tmp_path / "other", 4)
    path = path_of(root, 3)
    path.parent.mkdir(parents=True)
    shutil.copy(path_of(tmp_path / "other", 3), path)
    path_of(root, 0).unlink()
    (root / "usage").write_text("3 1\n")
    assert listed(opened(root)) == [1, 2, 3]
    assert not (root / "usage").exists()


def test_sums_that_are_wrong_are_counted_again(root: Path) -> None:
    store = filled(root)
    store._index._file.change(lambda connection: connection.execute("UPDATE folder SET entries = 9, nbytes = 9"))
    assert store.stats()[0].entries == 9
    store._index.renew()
    store.check_integrity()


def test_pins_outlive_an_index_that_is_put_into_its_place_by_the_next(root: Path) -> None:
    """Its maker was killed between the removal of the old one and the last renaming."""
    filled(root).pin(VARIANTS[0].key)
    (root / "index.sqlite").rename(root / "index.sqlite.new")
    store = DiskTier(root, None, "raw")
    assert told(root, "SELECT digest FROM pins") == [(VARIANTS[0].key.digest,)]
    assert kept(store) == [0, 1, 2]
    assert not (root / "index.sqlite.new").exists()


@pytest.mark.parametrize("forced", [True, False])
def test_an_index_has_nothing_removed_that_lies_elsewhere(root: Path, tmp_path: Path, forced: bool) -> None:
    store = filled(root)
    (tmp_path / "precious").write_text("")
    with closing(sqlite3.connect(root / "index.sqlite")) as index, index:
        index.execute("UPDATE entries SET coming = '../../precious'")
    if forced:
        store._index.renew()
    store.put(VARIANTS[3])
    assert (tmp_path / "precious").exists()
    assert kept(store) == [0, 1, 2, 3]


def test_a_file_from_the_future_was_used_by_now(root: Path) -> None:
    """Its time would not even fit into a row."""
    filled(root)
    os.utime(path_of(root, 1), (10**10, 10**10))
    (root / "index.sqlite").unlink()
    assert kept(opened(root)) == [0, 1, 2]
    ((used,),) = told(root, "SELECT max(used) FROM entries")
    assert used <= time.time_ns()


def test_inodes_of_64_bits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As network file systems have them."""
    stat = Path.stat

    def large(path: Path, **how: Any) -> os.stat_result:
        found = stat(path, **how)
        return os.stat_result((found[0], found[1] | 1 << 63, *found[2:10]), {"st_mtime_ns": found.st_mtime_ns})

    monkeypatch.setattr(Path, "stat", large)
    assert kept(filled(root)) == [0, 1, 2]


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(root: Path) -> None:
    store, paths = filled(root), [path_of(root, place) for place in (0, 1)]
    for path in paths:
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(CorruptEntry):
        store.get(VARIANTS[0].key)
    with pytest.raises(OSError):
        read_fields(paths[1])
    assert listed(store) == [2]
    store.stats()  # by now both are out of the way
