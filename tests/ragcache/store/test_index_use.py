"""Who uses the index of a cache folder, and how: hits, pins, those who only look, other processes."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ragcache.store.folder import CacheFolder
from ragcache.store.index import Change
from ragcache.store.index_file import IndexFile
from ragcache.store.index_parts import look
from ragcache.store.layout import FolderLayout
from tests.ragcache.store.conftest import build_variant
from tests.ragcache.store.folders import VARIANTS, filled, kept, opened, told
from tests.rights import without_rights


def stamps(root: Path) -> list[tuple[Path, int, int]]:
    files = ((path, path.stat()) for path in sorted(root.rglob("*")) if path.is_file())
    return [(path, told.st_size, told.st_mtime_ns) for path, told in files]


def test_a_hit_writes_nothing_until_later(root: Path) -> None:
    store = filled(root)
    store.get(VARIANTS[0].key)
    store.stats()  # the first use of a while is written down, by another thread
    before = stamps(root)
    for _ in range(20):
        store.get(VARIANTS[0].key)
    assert stamps(root) == before
    store.pin(VARIANTS[1].key)
    assert told(root, "SELECT max(uses) FROM entries") == [(21,)]


def test_uses_that_wait_are_written_at_the_end(root: Path) -> None:
    store = filled(root)
    for _ in range(5):
        store.get(VARIANTS[0].key)
    store.stats()
    del store
    assert told(root, "SELECT max(uses) FROM entries") == [(5,)]


def test_each_owner_lets_go_of_its_own_pin(root: Path) -> None:
    (size,) = {path.stat().st_size for path in filled(root, 2) and root.glob("*/*/*/*.kv")}
    store = opened(root, 2 * size)
    first, *others = (variant.key for variant in VARIANTS)
    for owner in ("ann", "bob"):
        store.pin(first, owner=owner)
    store.pin(first, False, owner="ann")
    store.put(VARIANTS[2])
    assert kept(store) == [0, 2]
    store.pin(first, False, owner="bob")
    store.get(others[1])
    store.put(VARIANTS[3])
    assert kept(store) == [2, 3]


def test_a_pin_ends_in_time(root: Path) -> None:
    (size,) = {path.stat().st_size for path in filled(root, 2) and root.glob("*/*/*/*.kv")}
    store = opened(root, 2 * size)
    store.pin(VARIANTS[0].key, seconds=3600)
    store.pin(VARIANTS[1].key, seconds=-1)
    store.put(VARIANTS[2])
    assert kept(store) == [0, 2]


def test_who_only_looks_makes_nothing(root: Path) -> None:
    store = filled(root)
    layout = FolderLayout(root)
    assert look(layout, "SELECT count(*) FROM entries") == [(3,)], "beside one who has it open"
    del store
    before = sorted(root.rglob("*"))
    assert not (root / "index.sqlite-wal").exists()
    assert len(list(CacheFolder(root).items())) == 3
    assert look(layout, "SELECT count(*) FROM entries") == [(3,)]
    assert sorted(root.rglob("*")) == before
    (root / "index.mark").unlink()
    assert look(layout, "SELECT count(*) FROM entries") is None
    assert len(list(CacheFolder(root).items())) == 3, "the folder is listed"


@pytest.mark.parametrize("left", [(), ("index.sqlite-wal",)])
def test_a_folder_that_may_only_be_read_is_looked_at(left: tuple[str, ...]) -> None:
    """Also where a program that was killed has left a log, which SQLite cannot read then."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        filled(root).pin(VARIANTS[0].key)
        for name in left:
            (root / name).write_bytes(b"a log")
        for path in (root, *root.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with without_rights():
            found = list(CacheFolder(root).items())
        assert len(found) == 3
        assert [item.pinned for item in found].count(True) == (not left), "the files tell of no pins"
        for path in (root, *root.rglob("*")):
            path.chmod(0o755)


def test_a_network_file_system_has_no_write_ahead_log(root: Path, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"host:/kv {root.resolve()} nfs4 rw 0 0\n")
    layout = FolderLayout(root)
    for expected, table in (("delete", mounts), ("wal", tmp_path / "none")):
        file = IndexFile(layout, table)
        file.change(lambda connection: None)
        assert file.read("PRAGMA journal_mode") == [(expected,)]
        file.end(lambda connection: None)


def test_exact_prefixes_are_trimmed_without_a_look_at_other_rows(root: Path) -> None:
    filled(root).put(build_variant((1, 2), fingerprint="engine-prefix"))
    asked: list[str] = []

    def trim(connection: sqlite3.Connection) -> tuple[int, int]:
        connection.set_trace_callback(asked.append)
        gone = [Change(connection, FolderLayout(root)).trim("engine-prefix", most) for most in (10**6, 0)]
        connection.set_trace_callback(None)
        return gone[0], gone[1]

    assert IndexFile(FolderLayout(root)).change(trim) == (0, 1)
    plans = [told(root, f"EXPLAIN QUERY PLAN {sql}") for sql in asked if "FROM entries WHERE substr" in sql]
    assert len(plans) == 3, "the sum, and which go, where any do"
    assert all("entries USING" in plan[0][-1] and "INDEX by_prefix" in plan[0][-1] for plan in plans)
    assert not any("B-TREE" in row[-1] for plan in plans for row in plan), "nothing is sorted"


def test_an_index_is_for_its_owner_alone(root: Path) -> None:
    store = filled(root)
    for name in ("index.sqlite", "index.sqlite-wal", "index.mark"):
        assert (root / name).stat().st_mode & 0o777 == 0o600, name
    assert store.stats()[0].entries == 3


def test_a_child_of_a_fork_has_connections_of_its_own(root: Path) -> None:
    store = filled(root)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            store.put(VARIANTS[3])
            status = int(kept(store) != [0, 1, 2, 3])
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    store.put(VARIANTS[4])
    assert kept(store) == [0, 1, 2, 3, 4]
