"""Uploads that something comes between: a deletion, a kill, a bucket or a disk that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import RemoteError
from ragcache.store.remote import courier, health, sent_record
from ragcache.store.remote import journal as module
from ragcache.store.remote.journal import Journal, Kind, RemoteTask, entry_task
from ragcache.store.remote.names import object_name
from ragcache.store.remote.sent_record import SentRecord
from ragcache.types import VariantKey
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled
from tests.waiting import wait_until


def test_what_who_was_killed_had_sent_after_its_deletion_does_not_stay(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    """It was put by a process that claimed its upload, when another had deleted all of its family."""
    variant, store = make_variant(), machine("one", folder_url)
    store._courier.close()
    store.put(variant)
    (file,) = store._disk.root.rglob("*.kv")
    data = file.read_bytes()
    assert len(Journal(store._disk.root, store._bucket.url).take((Kind.UPLOAD,), 1)) == 1
    other = machine("one", folder_url)
    other.drop_families({variant.key.family: set()})
    wait_until(lambda: other._journal.waiting() == {Kind.UPLOAD: 1}, 60)
    sent = Path(folder_url.removeprefix("file://"), object_name(variant.key, variant.lineage))
    sent.parent.mkdir(parents=True, exist_ok=True)
    sent.write_bytes(data)
    with other._journal._open() as connection:
        connection.execute("UPDATE tasks SET claimed = 0")  # its time is over
    other._courier.wake()
    settled(other)
    assert digests_in(other) == set()


def test_what_its_text_was_deleted_of_does_not_stay_though_its_file_goes_last(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion is written down before the files of a large folder go: it may have ended before the upload has."""
    variant, store = make_variant(), machine("one", folder_url)
    write, journal = store._bucket.write, store._journal

    async def late(name: str, data: Any) -> None:
        await write(name, data)
        monkeypatch.setattr(store._bucket, "write", write)
        journal.add([RemoteTask(Kind.CHUNK, (variant.key.border, variant.key.chunk))])
        journal.end(journal.take((Kind.CHUNK,), 1))

    monkeypatch.setattr(store._bucket, "write", late)
    store.put(variant)
    settled(store)
    assert list(store._disk.root.rglob("*.kv"))
    assert digests_in(store) == set()
    store.put(variant)
    settled(store)
    assert digests_in(store) == {variant.key.digest}, "what is put anew"


def test_who_is_killed_before_what_was_sent_is_written_down_as_gone_does_it_the_next_time(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant, store = make_variant(), machine("one", folder_url)
    store.put(variant)
    settled(store)
    store._courier.close()
    other = machine("one", folder_url)
    journal, add = other._journal, other._journal.add
    journal.add([entry_task(Kind.UPLOAD, variant.key)])
    assert journal.take((Kind.UPLOAD,), 1)  # by who sent it, and is gone
    journal.add([RemoteTask(Kind.TRACES, ("a",))])
    journal.end(journal.take((Kind.TRACES,), 1))
    other._disk.delete(variant.key)
    with journal._open() as connection:
        connection.execute("UPDATE tasks SET claimed = 0")

    def killed(tasks: Any) -> bool:
        monkeypatch.setattr(journal, "add", add)
        raise RemoteError("killed")

    monkeypatch.setattr(journal, "add", killed)
    other._courier.wake()
    wait_until(lambda: other._courier._idle, 60)
    with journal._open() as connection:
        connection.execute("UPDATE tasks SET claimed = 0, due = 0")
    other._courier.wake()
    settled(other)
    assert digests_in(other) == set()


def test_for_a_bucket_that_is_left_alone_no_file_is_read(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is asked of it, nor told to have been tried: it may be away for days, while thousands wait."""
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)  # or a slow machine may meet the next try
    variants, store = [make_variant((number,) * 3) for number in range(3)], machine("one", folder_url)
    with monkeypatch.context() as patched:
        patched.setattr(store._courier, "_read", lambda task: pytest.fail("a file is read"))
        patched.setattr(store._bucket, "places", lambda prefix="": pytest.fail("its names are asked for"))
        store._bucket.writing.failed("it may only be read")
        for variant in variants:
            store.put(variant)
        assert not store.settle(60)
    with store._journal._open() as connection:
        assert connection.execute("SELECT sum(tries), count(*) FROM tasks").fetchall() == [(0, 3)]
    due, left = store._courier._next_s(), store._bucket.writing.left_s
    assert due is not None
    assert due >= left > 0
    store._bucket.writing.succeeded()
    store._courier.wake()
    settled(store)
    assert digests_in(store) == {variant.key.digest for variant in variants}


def test_a_bucket_that_fails_amid_uploads_ends_their_reading(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that are held together are one here."""
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)
    variants, store, read = [make_variant((number,) * 3) for number in range(5)], machine("one", folder_url), []
    store._courier.close()
    for variant in variants:
        store.put(variant)
    monkeypatch.setattr(courier, "AT_ONCE_NBYTES", 1)
    again = machine("one", folder_url)
    again._courier.close()
    found = again._courier._read

    def failing(task: RemoteTask) -> Any:
        read.append(task)
        again._bucket.writing.failed("full")
        return found(task)

    monkeypatch.setattr(again._courier, "_read", failing)
    wait_until(lambda: again._courier._thread is None, 60)
    with again._journal._open() as connection:
        connection.execute("UPDATE tasks SET claimed = 0, due = 0")
    again._bucket.writing.succeeded()
    read.clear()
    assert again._courier._worked()
    assert len(read) == 1
    assert again._journal.waiting() == {Kind.UPLOAD: 5}
    with again._journal._open() as connection:
        assert connection.execute("SELECT count(*) FROM tasks WHERE claimed > 0").fetchall() == [(0,)]


def test_a_file_that_cannot_be_read_now_is_uploaded_later(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be sound, as those beside it are."""
    monkeypatch.setattr(module, "FIRST_S", module.LONGEST_S)  # or a slow machine may meet the next try
    late, sound = make_variant(), make_variant((1, 1, 1))
    first = machine("one", folder_url)
    first._courier.close()
    for variant in (late, sound):
        first.put(variant)
    path = first._disk._layout.entry(late.key)
    aside = path.rename(path.with_suffix(".aside"))
    path.symlink_to(path)  # whoever opens it meets an OSError
    store = machine("one", folder_url)
    wait_until(lambda: store._journal.waiting() == {Kind.UPLOAD: 1} and store._courier._idle, 60)
    assert digests_in(store) == {sound.key.digest}
    path.unlink()
    aside.rename(path)
    with store._journal._open() as connection:
        assert connection.execute("SELECT tries, claimed FROM tasks").fetchall() == [(1, 0)]
        connection.execute("UPDATE tasks SET due = 0")
    store._courier.wake()
    settled(store)
    assert digests_in(store) == {late.key.digest, sound.key.digest}


@pytest.mark.parametrize(("deleted", "stays"), [(False, True), (True, False)])
def test_what_was_evicted_before_it_was_sent_takes_no_other_machines_copy(
    machine: OpenMachine,
    folder_url: str,
    make_variant: Any,
    monkeypatch: pytest.MonkeyPatch,
    deleted: bool,
    stays: bool,
) -> None:
    """Where nothing was deleted since, of however long ago: whoever has sent it was right to."""
    variant, one, other = make_variant(), machine("one", folder_url), machine("other", folder_url)

    async def failing(name: str, data: Any) -> None:
        raise RemoteError("full")

    with monkeypatch.context() as patched:
        patched.setattr(one._bucket, "write", failing)
        if not deleted:
            one.drop_seeing({"a"})
        one.put(variant)
        assert not one.settle(60)
    other.put(variant)
    settled(other)
    if deleted:
        one.drop_seeing({"a"})
        wait_until(lambda: one._journal.waiting() == {Kind.UPLOAD: 1}, 60)
    one._disk.delete(variant.key)
    with one._journal._open() as connection:
        connection.execute("UPDATE tasks SET due = 0, done = 1 WHERE done IS NOT NULL")  # long ago
        connection.execute("UPDATE tasks SET due = 0")
    one._courier.wake()
    settled(one)
    assert digests_in(other) == ({variant.key.digest} if stays else set())


def test_what_is_deleted_here_alone_goes_from_the_bucket_where_it_was_sent_from_here(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest of it, by whatever process: whoever deletes it there could not know of that."""
    monkeypatch.setattr(sent_record, "MOST", 2)
    variants = [make_variant((number,)) for number in range(4)]
    first, second, third, others = (variant.key for variant in variants)
    store = machine("one", folder_url)
    for variant in variants[:3]:
        store.put(variant)
        settled(store)
    other = machine("two", folder_url)
    other.put(variants[3])
    settled(other)
    store.close()
    again = machine("one", folder_url)
    assert again.get(others) is not None and again.settle(60)
    assert again._disk.holds(others)
    keys = [first, second, third, others]
    assert again.delete_each(keys, here=True) == keys and not again.delete_here(third)
    settled(again)
    assert digests_in(other) == {first.digest, others.digest}


def test_nor_does_what_a_courier_took_up_meanwhile(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another process: it had read the file before that went."""
    variant, store, other = make_variant(), machine("one", folder_url), machine("two", folder_url)
    store._disk.put(variant)
    delete_each = store._inner.delete_each

    def sent(keys: list[VariantKey]) -> list[VariantKey]:
        store._sent.note(key.digest for key in keys)
        other.put(variant)
        settled(other)
        return delete_each(keys)

    monkeypatch.setattr(store._inner, "delete_each", sent)
    assert store.delete_here(variant.key)
    settled(store)
    assert digests_in(store) == set()


def test_what_is_sent_anew_is_remembered_anew(
    tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But no other goes for one that is tried again and again."""
    monkeypatch.setattr(sent_record, "MOST", 4)
    record, keys = SentRecord(tmp_path, "file:///b"), [make_variant((number,)).key for number in range(5)]
    for key in keys[:4]:
        record.note([key.digest])
    for _ in range(9):
        record.note([keys[3].digest])
    assert record.of(keys) == {*keys[:4]}
    for number in (0, 4):
        record.note([keys[number].digest])
    assert record.of(keys) == {keys[0], keys[2], keys[3], keys[4]}
