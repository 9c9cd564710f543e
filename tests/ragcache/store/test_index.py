"""The index of a cache folder: lost, torn, old or from before it, it tells what lies there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from ragcache.store import DiskTier
from tests.ragcache.store.conftest import build_variant
from tests.ragcache.store.folders import VARIANTS, altered, filled, kept, listed, opened, told


def test_what_the_index_tells(root: Path) -> None:
    store = DiskTier(root, None, "bf16")
    variant = build_variant(border="ann")
    store.put(variant)
    columns = "digest, engine, family, fingerprint, system, context, history, chunk, border, codec, lost, nbytes, uses"
    (row,) = told(root, f"SELECT {columns} FROM entries")
    key, (path,) = variant.key, root.glob("*/*/*/*.kv")
    place = key.digest, key.fingerprint[:16], key.family
    named = key.fingerprint, key.system, '["c0", "c1"]', key.history, key.chunk, key.border
    assert row == (*place, *named, "bf16", '["bf16"]', path.stat().st_size, 0)
    for _ in range(3):
        store.get(key)
    store.pin(key)
    assert told(root, "SELECT uses FROM entries") == [(3,)]


def delete(root: Path) -> None:
    (root / "index.sqlite").unlink()


def garble(root: Path) -> None:
    (root / "index.sqlite").write_bytes(os.urandom(20_000))


def garble_the_middle(root: Path) -> None:
    with (root / "index.sqlite").open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(3 * 4096))


def garble_what_look_ups_read(root: Path) -> None:
    """Alone: as of a log that was left beside an older copy."""
    ((page,),) = told(root, "SELECT rootpage FROM sqlite_master WHERE name = 'by_family'")
    with (root / "index.sqlite").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


def cut(root: Path) -> None:
    os.truncate(root / "index.sqlite", 5000)


def empty(root: Path) -> None:
    (root / "index.sqlite").write_bytes(b"")


def of_another_version(root: Path) -> None:
    with closing(sqlite3.connect(root / "index.sqlite")) as index:
        index.executescript("DROP TABLE entries; PRAGMA user_version = 1")


NO_NUMBER = "ALTER TABLE folder DROP COLUMN made"  # as while this version was made
NO_TEXT = "UPDATE entries SET digest = CAST(x'ff' || substr(digest, 2) AS TEXT)"
ODD = [NO_TEXT, "UPDATE entries SET coming = x'01'", "DELETE FROM folder", NO_NUMBER]
HARMS = [delete, garble, garble_the_middle, garble_what_look_ups_read, cut, empty, of_another_version]


@pytest.mark.parametrize("harm", HARMS + [partial(altered, sql=sql) for sql in ODD])
def test_an_index_that_is_lost_or_torn_is_made_again(root: Path, harm: Callable[[Path], None]) -> None:
    filled(root).check_integrity()
    harm(root)
    store = opened(root)
    store.check_integrity()
    assert kept(store) == [0, 1, 2]
    assert {row for (row,) in told(root, "SELECT chunk FROM entries")} == {one.key.chunk for one in VARIANTS[:3]}
    assert told(root, "SELECT count(made) FROM folder") == [(1,)]


@pytest.mark.parametrize("harm", [delete, garble])
def test_an_index_that_is_lost_under_those_who_use_it(root: Path, harm: Callable[[Path], None]) -> None:
    store, other = filled(root), opened(root)
    harm(root)
    other.put(VARIANTS[3])
    store.put(VARIANTS[4])
    assert kept(store) == kept(other) == [0, 1, 2, 3, 4]


def test_an_older_copy_is_brought_up_to_date(root: Path, tmp_path: Path) -> None:
    filled(root).pin(VARIANTS[0].key)
    shutil.copy(root / "index.sqlite", tmp_path / "copy")
    store = opened(root)
    store.put(VARIANTS[3])
    store.delete(VARIANTS[1].key)
    del store
    shutil.copy(tmp_path / "copy", root / "index.sqlite")
    store = opened(root)
    store.check_integrity()
    assert kept(store) == [0, 2, 3]
    assert told(root, "SELECT digest FROM pins") == [(VARIANTS[0].key.digest,)]


def test_the_index_of_another_folder_is_not_believed(root: Path, tmp_path: Path) -> None:
    filled(root)
    other = filled(tmp_path / "other", 5)
    del other
    shutil.copy(tmp_path / "other" / "index.sqlite", root / "index.sqlite")
    assert kept(opened(root)) == [0, 1, 2]


def test_files_are_counted_again_after_the_machine_was_started(root: Path) -> None:
    """A power cut takes the last changes of the index, and of its mark, but no file that was told to be kept."""
    filled(root)
    with closing(sqlite3.connect(root / "index.sqlite")) as index, index:
        index.execute("DELETE FROM entries WHERE digest = ?", (VARIANTS[1].key.digest,))
    assert listed(opened(root)) == [0, 2], "the mark says that all is as it was left"
    before = (root / "index.mark").read_text()
    (root / "index.mark").write_text(before.replace(before.split()[2], "another-start-of-the-machine-36-chars"[:36]))
    assert kept(opened(root)) == [0, 1, 2]


def test_a_pin_outlives_a_torn_index_where_it_can_be_read(root: Path) -> None:
    filled(root).pin(VARIANTS[0].key)
    of_another_version(root)
    (size, *_) = (path.stat().st_size for path in root.glob("*/*/*/*.kv"))
    store = opened(root, 3 * size)
    store.put(VARIANTS[3])
    assert kept(store) == [0, 2, 3]


def test_a_folder_from_before_the_index_is_taken_over(root: Path) -> None:
    store = filled(root, 4)
    paths = {place: root / next(root.rglob(f"{VARIANTS[place].key.digest}.kv")) for place in range(4)}
    del store
    for name in ("index.sqlite", "index.mark"):
        (root / name).unlink()
    shutil.rmtree(root / "writing")
    (root / "usage").write_text("4 4352\n")
    for place, path in paths.items():
        now = time.time_ns() - place * 10**9  # the last one was used longest ago
        os.utime(path, ns=(now, now))
    paths[3].with_suffix(".pin").touch()
    dead = paths[0].parent / "x.1.aa.tmp"
    dead.touch()
    size = paths[0].stat().st_size
    store = opened(root, 4 * size)
    store.check_integrity()
    assert not (root / "usage").exists()
    assert not dead.exists()
    assert list(root.rglob("*.pin")) == []
    store.put(VARIANTS[4])
    assert kept(store) == [0, 1, 3, 4], "the pinned one stays, and of the others that goes which was used longest ago"
    store.pin(VARIANTS[3].key, False)
    assert told(root, "SELECT * FROM pins") == []


def test_a_file_that_somebody_took_away_is_forgotten_when_it_is_missed(root: Path) -> None:
    store = filled(root)
    for place in (0, 1):
        next(root.rglob(f"{VARIANTS[place].key.digest}.kv")).unlink()
    assert store.get(VARIANTS[0].key) is None
    assert store.variants(VARIANTS[1].key.family) == []
    assert store.stats()[0].entries == 1
    store.check_integrity()
