"""What the bucket is to be told survives whoever was to tell it."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import StoreError
from ragcache.store.remote import journal as module
from ragcache.store.remote.folder_file import FILE
from ragcache.store.remote.health import ALL_LOCKED
from ragcache.store.remote.journal import Journal, Kind, RemoteTask, entry_task

UPLOADS = [RemoteTask(Kind.UPLOAD, ("engine", "family", f"digest-{number}")) for number in range(5)]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path, "s3://here")


def taken(journal: Journal, *kinds: Kind) -> list[RemoteTask]:
    return journal.take(kinds or tuple(Kind), 100)


def test_tasks_are_taken_once_in_their_order(journal: Journal, tmp_path: Path) -> None:
    assert journal.add(UPLOADS)
    first = journal.take((Kind.UPLOAD,), 3)
    assert [task.told for task in first] == [task.told for task in UPLOADS[:3]]
    other = Journal(tmp_path, "s3://here")  # another process
    assert [task.told for task in taken(other)] == [task.told for task in UPLOADS[3:]]
    assert taken(journal) == []
    journal.end(first)
    assert journal.waiting() == {Kind.UPLOAD: 2}


def test_another_bucket_has_tasks_of_its_own(journal: Journal, tmp_path: Path) -> None:
    journal.add(UPLOADS)
    assert taken(Journal(tmp_path, "s3://there")) == []


def test_what_a_killed_process_claimed_falls_to_another(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLAIM_S", -1.0)
    journal.add(UPLOADS[:1])
    tries = [task.tries for _ in range(2) for task in taken(journal)]
    assert tries == [0, 1], "it may have done some of it"
    journal.add(UPLOADS[:1])
    assert [task.tries for task in taken(journal)] == [1], "also of what is told anew meanwhile"


def test_a_clock_that_is_set_back_holds_nothing_up(
    journal: Journal, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put off, what somebody had claimed, and what is remembered of what has gone."""
    postponed, claimed = RemoteTask(Kind.TRACES, ("a",)), RemoteTask(Kind.TRACES, ("b",))
    gone, now = make_variant().key, time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    journal.add([entry_task(Kind.DELETE, gone)])
    journal.end(taken(journal))
    journal.add([postponed])
    journal.postpone(taken(journal))
    journal.add([claimed])
    assert len(taken(journal)) == 1
    assert taken(journal) == []
    monkeypatch.setattr(time, "time", lambda: now)
    assert {task.told for task in taken(journal)} == {("a",), ("b",)}
    assert taken(journal) == [], "claimed by now"
    assert journal.has_gone(gone, {gone.chunk})
    monkeypatch.setattr(time, "time", lambda: now + module.REMEMBERED_S + 1)
    assert len(taken(journal)) == 2
    assert not journal.has_gone(gone, {gone.chunk})


def test_what_failed_waits_and_longer_each_time(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    journal.add(UPLOADS[:1])
    journal.postpone(taken(journal))
    assert taken(journal) == []
    first = journal.next_s()
    assert first is not None
    assert 0 < first <= 1.25 * module.FIRST_S
    for tries in (3, 50):
        journal.postpone([RemoteTask(Kind.UPLOAD, UPLOADS[0].told, tries=tries)])
        assert first < (journal.next_s() or 0) <= 1.25 * module.LONGEST_S


def test_a_deletion_takes_the_place_of_an_upload_that_is_under_way(journal: Journal, make_variant: Any) -> None:
    key = make_variant().key
    journal.add([entry_task(Kind.UPLOAD, key)])
    under_way = taken(journal)
    journal.add([entry_task(Kind.DELETE, key)])
    assert taken(journal) == [], "one at a time does something to an entry"
    journal.end(under_way)
    (task,) = taken(journal)
    assert task.kind is Kind.DELETE
    journal.end([task])
    assert journal.waiting() == {}


def test_what_has_gone_is_known_until_it_is_put_again(journal: Journal, make_variant: Any) -> None:
    variant = make_variant()
    key = variant.key
    assert not journal.has_gone(key, {key.chunk})
    journal.add([entry_task(Kind.DELETE, key)])
    assert journal.has_gone(key, {key.chunk})
    journal.end(taken(journal))
    assert journal.has_gone(key, {key.chunk}), "something may be on its way still"
    journal.add([entry_task(Kind.UPLOAD, key)])
    assert not journal.has_gone(key, {key.chunk})


@pytest.mark.parametrize("kind", [Kind.FAMILY, Kind.CHUNK, Kind.TRACES])
def test_deletions_of_many_tell_of_each(journal: Journal, make_variant: Any, kind: Kind) -> None:
    key = make_variant().key
    told = {Kind.FAMILY: (key.family,), Kind.CHUNK: ("", key.chunk), Kind.TRACES: ("c0",)}[kind]
    journal.add([RemoteTask(kind, told)])
    assert journal.has_gone(key, {key.chunk, "c0"})
    assert not journal.has_gone(make_variant((1, 2, 3), border="b").key, {"other"})


def test_of_a_family_that_goes_all_has_gone_but_what_stays(journal: Journal, make_variant: Any) -> None:
    gone, stays = make_variant(context=("a",)).key, make_variant(context=("b",)).key
    journal.add([RemoteTask(Kind.FAMILY, (gone.family, stays.digest))])
    assert journal.has_gone(gone, {gone.chunk})
    assert not journal.has_gone(stays, {stays.chunk})
    journal.add([RemoteTask(Kind.FAMILY, (gone.family,))])  # it stays no longer
    assert journal.has_gone(stays, {stays.chunk})
    assert journal.waiting() == {Kind.FAMILY: 1}, "one family is told of once"


@pytest.mark.parametrize("ends", [True, False])
def test_what_an_older_version_has_told_ends_too(journal: Journal, ends: bool) -> None:
    """Under the name that it had there; and uploads behind it go on."""
    family, stays = "f" * 64, "d" * 64
    row = ("s3://here", f"family {family} {stays}", Kind.FAMILY, json.dumps([family, stays]), 1)
    with journal._open() as connection:
        connection.execute(module._ADD, row)
    journal.add(UPLOADS[:1])
    assert journal.take((Kind.UPLOAD,), 1) == []
    (journal.end if ends else journal.postpone)(told := journal.take((Kind.FAMILY,), 1))
    assert [task.told for task in told] == [(family, stays)]
    with journal._open() as connection:
        ((tries, done),) = connection.execute("SELECT tries, done IS NOT NULL FROM tasks WHERE kind = 'family'")
    assert (tries, done) == (1, int(ends))
    assert len(journal.take((Kind.UPLOAD,), 1)) == int(ends)


def test_uploads_are_bounded_and_deletions_are_not(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    assert not journal.add(UPLOADS)
    assert journal.waiting() == {Kind.UPLOAD: 3}
    assert journal.add([RemoteTask(Kind.TRACES, ("text",))])


def test_old_deletions_are_forgotten(journal: Journal, make_variant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = make_variant().key
    journal.add([entry_task(Kind.DELETE, key)])
    journal.end(taken(journal))
    monkeypatch.setattr(module, "REMEMBERED_S", -1.0)
    taken(journal)
    assert not journal.has_gone(key, {key.chunk})


def test_a_broken_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="delete it"):
        Journal(tmp_path, "s3://here")


def test_a_deletion_that_fails_for_ever_holds_back_no_upload(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_S", 0.0)
    journal.add([RemoteTask(Kind.FAMILY, ("family",))])
    journal.add(UPLOADS[:1])
    for _ in range(module.HOPELESS):
        assert taken(journal, Kind.UPLOAD) == []
        deletions = taken(journal, Kind.FAMILY)
        assert taken(journal, Kind.UPLOAD) == [], "the last try may end it"
        journal.postpone(deletions)
    assert len(taken(journal, Kind.UPLOAD)) == 1
    assert journal.waiting()[Kind.FAMILY] == 1


def test_numbers_of_the_program_stay_as_its_seed_has_them(journal: Journal) -> None:
    before = random.getstate()
    journal.add(UPLOADS[:1])
    journal.postpone(taken(journal))
    assert random.getstate() == before


def test_a_fork_waits_until_no_other_thread_is_within_a_transaction(journal: Journal) -> None:
    """What a thread has locked within SQLite at a fork stays locked in the child, for ever."""
    begun, ended = threading.Event(), threading.Event()

    def use() -> None:
        with journal._open():
            begun.set()
            time.sleep(0.2)
            ended.set()

    thread = threading.Thread(target=use)
    thread.start()
    assert begun.wait(60)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        journal.add(UPLOADS)
        os._exit(0 if ended.is_set() else 2)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    journal.add(UPLOADS)
    assert journal.waiting() == {Kind.UPLOAD: len(UPLOADS)}


def test_who_reads_waits_for_nobody_who_writes(journal: Journal) -> None:
    """A collection that goes has as many tasks as chunks."""
    with journal._open() as connection:
        connection.execute("BEGIN IMMEDIATE")
        told = ThreadPoolExecutor(1).submit(journal.waiting)
        assert told.result(timeout=60) == {}


def test_deletions_that_fail_for_ever_are_taken_by_themselves(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is deleted with them would fail with them. In turns with walks, by what has waited for longest."""
    monkeypatch.setattr(module, "FIRST_S", -1.0)
    denied, walk, new = RemoteTask(Kind.DELETE, ("", "f", "d")), *(RemoteTask(Kind.TRACES, (one,)) for one in "ab")
    journal.narrow([], [denied])
    journal.add([walk])
    journal.postpone(taken(journal), module.HOPELESS)
    journal.add([new])
    assert [task.told for task in taken(journal)] == [new.told]
    assert taken(journal) == []
    for first, second in ((denied, walk), (walk, denied)):
        with journal._open() as connection:
            connection.execute("UPDATE tasks SET claimed = 0, due = name != ?", (first.name,))
        turns = [journal.take(tuple(Kind), 100, hopeless=True) for _ in range(3)]
        assert [[task.told for task in tasks] for tasks in turns] == [[first.told], [second.told], []]
        assert [task.hopeless for tasks in turns for task in tasks] == [first is denied, second is denied]


def test_walks_that_fail_for_ever_are_taken_together(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each walk lists the whole bucket. Of single entries no more than may be denied in a row."""
    monkeypatch.setattr(module, "FIRST_S", -1.0)
    kinds = Kind.FAMILY, Kind.CHUNK, Kind.TRACES
    journal.add([RemoteTask(kind, (str(place), "")) for kind in kinds for place in range(200)])
    journal.postpone(journal.take(tuple(Kind), 1000), module.HOPELESS)
    assert len(journal.take(tuple(Kind), 500, hopeless=True)) == 500
    assert len(journal.take(tuple(Kind), 500, hopeless=True)) == 100
    journal.narrow([], [RemoteTask(Kind.DELETE, ("", "f", str(place))) for place in range(600)])
    assert len(journal.take(tuple(Kind), 500, hopeless=True)) == ALL_LOCKED


def test_what_may_not_be_deleted_rests_together(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """While all of it is left alone, each batch would be claimed and put off in vain."""
    monkeypatch.setattr(module, "FIRST_S", -1.0)
    journal.narrow([], [RemoteTask(Kind.DELETE, ("", "f", str(place))) for place in range(600)])
    journal.add([walk := RemoteTask(Kind.TRACES, ("a",))])
    journal.postpone(taken(journal), module.HOPELESS)
    journal.rest(60.0)
    assert [task.told for task in journal.take(tuple(Kind), 100, hopeless=True)] == [walk.told]
    assert journal.take(tuple(Kind), 100, hopeless=True) == []
    assert 0 < (journal.next_s() or 0) <= 60


def test_what_was_deleted_before_an_entry_was_put_says_nothing_of_it(journal: Journal, make_variant: Any) -> None:
    key = make_variant().key
    journal.add([entry_task(Kind.UPLOAD, key)])
    (before,) = taken(journal)
    journal.add([RemoteTask(Kind.TRACES, ("a",))])
    (deletion,) = taken(journal)
    journal.end([deletion])
    assert journal.has_gone(key, {"a"}, since=before.number), "also by one that has ended"
    assert not journal.has_gone(key, {"a"}, since=deletion.number)


@pytest.mark.parametrize(("later", "kind"), [(1, Kind.UPLOAD), (-1, Kind.DELETE)])
def test_what_is_left_of_a_deletion_takes_the_place_of_an_upload_of_before(
    journal: Journal, make_variant: Any, later: int, kind: Kind
) -> None:
    journal.add([RemoteTask(Kind.TRACES, ("a",))])
    walked = taken(journal)
    upload = entry_task(Kind.UPLOAD, make_variant().key)
    journal.add([upload])
    with journal._open() as connection:
        number = walked[0].number + later
        connection.execute("UPDATE tasks SET number = ? WHERE kind = 'upload'", (number,))
    journal.narrow(walked, [RemoteTask(Kind.DELETE, ("", *upload.told[1:]), walked[0].number)])
    assert journal.waiting() == {kind: 1}
