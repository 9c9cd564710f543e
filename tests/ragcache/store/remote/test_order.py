"""What waits for a bucket is done in an order that takes nothing back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import StoreError
from ragcache.store.remote import journal
from ragcache.store.remote.journal import Journal, Kind, RemoteTask, entry_task
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled

URL = "s3://shelf"


def test_no_upload_overtakes_a_deletion_that_is_put_off(
    tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which would delete it."""
    monkeypatch.setattr(journal, "FIRST_S", journal.LONGEST_S)  # or on a slow machine it is due again
    waiting, before, after = Journal(tmp_path, URL), make_variant((1, 1)), make_variant((2, 2))
    waiting.add([entry_task(Kind.UPLOAD, before.key)])
    waiting.add([RemoteTask(Kind.CHUNK, ("", after.key.chunk))])
    waiting.postpone(waiting.take((Kind.CHUNK,), 9))
    waiting.add([entry_task(Kind.UPLOAD, after.key)])
    taken = waiting.take((Kind.UPLOAD,), 9)
    assert [task.name for task in taken] == [before.key.digest]
    waiting.end(taken)
    due = waiting.next_s()
    assert due is not None and due > 1, "nobody looks again and again for what may not be done yet"


def test_only_uploads_to_this_bucket_count_against_its_bound(
    tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_WAITING", 2)
    other, waiting = Journal(tmp_path, "s3://left"), Journal(tmp_path, URL)
    assert other.add([entry_task(Kind.UPLOAD, make_variant((one, one)).key) for one in (1, 2)])
    assert waiting.add([RemoteTask(Kind.TRACES, (name,)) for name in ("a", "b", "c")])
    assert waiting.add([entry_task(Kind.UPLOAD, make_variant((one, one)).key) for one in (3, 4)])
    assert not waiting.add([entry_task(Kind.UPLOAD, make_variant((5, 5)).key)])


def test_a_deletion_is_written_down_though_what_goes_here_cannot_be_looked_up(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the bucket would serve it to other machines on."""
    store, variant = machine("one", folder_url), make_variant()
    store.put(variant)
    settled(store)

    def unreadable(*of: Any) -> Any:
        raise StoreError("the index cannot be read")

    for looked in ("variants", "everywhere"):
        monkeypatch.setattr(store._inner, looked, unreadable)
    key = variant.key
    with pytest.raises(StoreError):
        store.drop_chunk(key.fingerprint, key.system, key.chunk, elsewhere=True)
    settled(store)
    assert digests_in(store) == set()


def test_a_clock_that_is_set_back_changes_no_order(
    tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told later has the higher number, by which an upload finds what was deleted since."""
    waiting = Journal(tmp_path, URL)
    key, numbers = make_variant().key, iter((3_000, 2_000, 1_000, 5_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(numbers))
    waiting.add([entry_task(Kind.UPLOAD, key)])
    (upload,) = waiting.take((Kind.UPLOAD,), 9)
    waiting.add([RemoteTask(Kind.TRACES, ("a",)), RemoteTask(Kind.TRACES, ("b",))])
    waiting.narrow([], [RemoteTask(Kind.DELETE, ("", "f", "d"))])
    waiting.add([entry_task(Kind.UPLOAD, make_variant((2, 2)).key)])
    assert waiting.has_gone(key, {"b"}, since=upload.number)
    with waiting._open() as connection:
        told = connection.execute("SELECT number FROM tasks ORDER BY number").fetchall()
    assert told == [(3_000,), (3_001,), (3_002,), (3_003,), (5_000,)]
