"""An index that others change, make or replace at the same time."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import StoreError
from ragcache.store import DiskTier, index_file, index_making, index_parts
from ragcache.store.index import Change
from ragcache.store.layout import FolderLayout
from tests.ragcache.store.folders import VARIANTS, filled, kept, listed, opened, told


def in_time(work: Callable[[], Any]) -> None:
    """It waits for nobody who is stopped meanwhile."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Who looked at all files of a folder."""
    looks, files = list[threading.Thread](), FolderLayout.files

    def noted(layout: FolderLayout, *which: Any) -> Any:
        looks.append(threading.current_thread())
        return files(layout, *which)

    monkeypatch.setattr(FolderLayout, "files", noted)
    return looks


def test_who_opens_beside_a_writer_looks_at_no_file(
    root: Path, monkeypatch: pytest.MonkeyPatch, looks: list[threading.Thread]
) -> None:
    """The mark is there a moment before its change."""
    store = filled(root)
    looks.clear()
    write, read = index_file.write_mark, index_file.read_mark
    met, found = threading.Event(), list[DiskTier]()
    opener = threading.Thread(target=lambda: found.append(opened(root)))

    def reading(layout: FolderLayout) -> bytes:
        mark = read(layout)
        if threading.current_thread() is opener:
            met.set()
        return mark

    def writing(layout: FolderLayout, text: bytes) -> None:
        write(layout, text)
        if not opener.ident:
            opener.start()
            assert met.wait(30)

    monkeypatch.setattr(index_file, "read_mark", reading)
    monkeypatch.setattr(index_file, "write_mark", writing)
    store.pin(VARIANTS[0].key)
    opener.join()
    assert looks == []
    assert kept(found[0]) == [0, 1, 2]


@pytest.mark.parametrize("lost", [True, False])
def test_look_ups_wait_for_nobody_who_looks_at_all_files(
    root: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    store, other = filled(root), opened(root)
    fresh, begun, go_on = opened(root), threading.Event(), threading.Event()  # fresh one has not been asked yet
    files = FolderLayout.files

    def slow(layout: FolderLayout, *which: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return files(layout, *which)

    monkeypatch.setattr(FolderLayout, "files", slow)
    if lost:
        (root / "index.sqlite").unlink()
    maker = threading.Thread(target=other._index.renew)
    maker.start()
    assert begun.wait(30)
    try:
        in_time(lambda: listed(store))
        in_time(lambda: listed(fresh))
    finally:
        go_on.set()
        maker.join()
    assert kept(store) == kept(fresh) == [0, 1, 2]


def test_a_change_that_another_index_overtakes_is_in_that_one(root: Path) -> None:
    store = filled(root)

    def overtaken(change: Change) -> str:
        change.pin(VARIANTS[0].key.digest, "ann", None)
        if len(done) == 0:
            (root / "index.sqlite").unlink()
            opened(root).put(VARIANTS[3])
        done.append("done")
        return done[-1] + str(len(done))

    done: list[str] = []
    assert store._index.change(overtaken) == "done1"
    assert told(root, "SELECT owner FROM pins") == [("ann",)]
    assert kept(store) == [0, 1, 2, 3]


def test_nobody_changes_an_index_that_is_being_replaced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a server of an older version, which finds it sound."""
    store, newer = filled(root), opened(root)
    store.pin(VARIANTS[0].key, owner="ann")
    rebuild, held = index_making.rebuild, store._index._file._writer
    assert held is not None
    held.connection.execute("PRAGMA user_version = 1")
    held.connection.execute("PRAGMA busy_timeout = 0")

    def beside(connection: sqlite3.Connection, layout: FolderLayout) -> list[Path]:
        useless = rebuild(connection, layout)
        with pytest.raises(StoreError, match="locked"):
            store.pin(VARIANTS[0].key, owner="bob")
        return useless

    monkeypatch.setattr(index_making, "rebuild", beside)
    newer._index._file._writer = newer._index._file._reader = None
    newer.pin(VARIANTS[1].key, owner="cid")
    store.pin(VARIANTS[0].key, owner="bob")
    assert sorted(told(root, "SELECT owner FROM pins")) == [("ann",), ("bob",), ("cid",)]
    assert kept(store) == [0, 1, 2]


def test_a_change_of_one_who_was_killed_is_noticed_by_the_next(root: Path) -> None:
    store = filled(root)
    with sqlite3.connect(root / "index.sqlite") as index:
        index.execute("DELETE FROM entries WHERE digest = ?", (VARIANTS[1].key.digest,))
    index.close()
    mark = (root / "index.mark").read_text()
    (root / "index.mark").write_text(f"{7:020}" + mark[20:])  # and no commit
    store.pin(VARIANTS[0].key)
    assert kept(store) == [0, 1, 2]


def test_a_longer_mark_is_believed_again_after_one_look(root: Path, looks: list[threading.Thread]) -> None:
    store = filled(root)
    with (root / "index.mark").open("ab") as mark:
        mark.write(b"of another version")
    looks.clear()
    store.pin(VARIANTS[0].key)
    store.put(VARIANTS[3])
    assert len(looks) == 1
    assert kept(store) == [0, 1, 2, 3]


def test_who_looks_beside_a_writer_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, connect = filled(root), index_parts.connect
    owners = iter(["ann", "bob"])

    def beside(path: Path, mode: str = "rw") -> sqlite3.Connection:
        if mode == "ro" and (owner := next(owners, None)):
            store.pin(VARIANTS[0].key, owner=owner)
        return connect(path, mode)

    monkeypatch.setattr(index_parts, "connect", beside)
    assert index_parts.look(FolderLayout(root), "SELECT count(*) FROM pins") == [(1,)]
    assert next(owners) == "bob", "once is enough"


def test_a_log_alone_gets_no_file_beside_it(root: Path) -> None:
    filled(root)
    (root / "index.sqlite-wal").write_bytes(b"")
    assert index_parts.look(FolderLayout(root), "SELECT 1") is None
    assert not (root / "index.sqlite-shm").exists()


class Torn(sqlite3.Connection):
    """At a commit, once."""

    left: list[str]

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.left:
            error = sqlite3.DatabaseError(self.left.pop())
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return super().execute(sql, *values)


def test_what_is_done_again_tells_what_it_told_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(root)
    torn = type("TornOnce", (Torn,), {"left": []})
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=torn))
    store, bring, times = opened(root), Change.bring, ["torn"]

    def tearing(change: Change, **how: Any) -> bool:
        if times:
            torn.left.append(times.pop())
        return bring(change, **how)

    torn.left.append("torn")
    assert store.delete(VARIANTS[0].key)
    monkeypatch.setattr(Change, "bring", tearing)
    store.put(VARIANTS[3])
    assert torn.left == times == []
    assert kept(store) == [1, 2, 3]


def test_what_is_deleted_again_and_again_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, announce = filled(root), Change.announce

    def taken_away(change: Change, *told: Any) -> None:
        announce(change, *told)
        change.forget(FolderLayout(root).entry(VARIANTS[3].key))

    monkeypatch.setattr(Change, "announce", taken_away)
    with pytest.raises(StoreError, match="again and again"):
        store.put(VARIANTS[3])
    assert kept(store) == [0, 1, 2]


def test_a_fork_while_a_use_is_noted(root: Path) -> None:
    store = filled(root)
    with store._index._uses._lock, store._background._lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            store.use(VARIANTS[0].key)
            store._background.add(print)
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_two_threads_fork_at_once(root: Path) -> None:
    """Each lets go of what it has got."""
    file = filled(root)._index._file
    file.before_fork()
    other = threading.Thread(target=lambda: (file._held.setdefault(threading.get_ident(), []), file.after_fork()))
    other.start()
    other.join()
    assert file._writing.locked()
    file.after_fork()
    assert not file._writing.locked()


def test_the_log_does_not_stay_at_its_peak(root: Path) -> None:
    limit = filled(root)._index._file.read("PRAGMA journal_size_limit")
    assert 0 < limit[0][0] <= 4 << 20
