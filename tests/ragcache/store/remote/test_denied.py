"""Objects that may not be written or deleted, in a bucket whose others may."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import time
from typing import Any

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError

from ragcache.errors import RemoteError
from ragcache.store.eviction import ORDERS
from ragcache.store.remote import health, journal
from ragcache.store.remote.bucket import WRITES
from ragcache.store.remote.health import ALL_DENIED, ALL_LOCKED
from ragcache.store.remote.journal import Kind
from ragcache.store.remote.shared_uses import FOLDER, ToldUses
from ragcache.store.remote.store import SharedStore
from ragcache.store.remote.sweep import lowered, usage
from ragcache.types import Variant
from tests.buckets import Proxy, S3Bucket
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, names_in, settled
from tests.waiting import wait_until


def again(store: SharedStore) -> None:
    """What was put off is due."""
    with store._journal._open() as connection:
        connection.execute("UPDATE tasks SET due = 0, claimed = 0")
    store._courier.wake()


def few(make_variant: Any) -> list[Variant]:
    return [make_variant((number,) * 3) for number in range(3 * ALL_DENIED)]


def test_an_object_that_may_not_be_written_keeps_no_other_from_it(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any
) -> None:
    denied, *others = few(make_variant)
    store = machine("one", far.url)
    network.fault = lambda method, path: "403" if method == "PUT" and denied.key.digest in path else ""
    for variant in (denied, *others):
        store.put(variant)
    wait_until(lambda: store._journal.waiting() == {Kind.UPLOAD: 1} and store._courier._idle, 60)
    assert digests_in(store) == {variant.key.digest for variant in others}
    for _ in range(2 * ALL_DENIED):
        again(store)
        store.settle(60)
    assert store._bucket.writing.fine, "however often it is tried"
    assert [denied.key.digest in told for told in store._bucket.take_told()] == [True], "told once"
    with store._journal._open() as connection:
        ((tries, due),) = connection.execute("SELECT tries, due FROM tasks").fetchall()
    assert tries > 2 * ALL_DENIED and due > 0
    network.fault = lambda method, path: ""
    again(store)
    settled(store)
    assert denied.key.digest in digests_in(store)


def test_a_bucket_of_which_nothing_may_be_written_is_left_alone(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are neither read nor sent in vain then."""
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)  # or a slow machine may meet the next try
    store = machine("one", far.url)
    network.fault = lambda method, path: "403" if method == "PUT" else ""
    for variant in few(make_variant):
        store.put(variant)
    wait_until(lambda: not store._bucket.writing.fine, 60)
    assert store._bucket.writing.left_s > 0
    assert not store.settle(60)
    tried = [path for method, path in network.requests if method == "PUT" and f"/{FOLDER}" not in path]
    assert 0 < len(tried) <= ALL_DENIED + WRITES


def test_what_waits_for_others_to_be_written_is_not_sent_when_they_were_denied(
    machine: OpenMachine, far: S3Bucket, network: Proxy
) -> None:
    bucket = machine("one", far.url)._bucket
    network.fault = lambda method, path: "403" if method == "PUT" else ""

    async def written() -> list[BaseException | None]:
        return await asyncio.gather(*(bucket.write(f"kv/{one}", b"text") for one in range(20)), return_exceptions=True)

    assert all(isinstance(one, RemoteError) for one in bucket.submit(written()).result())
    assert sum(method == "PUT" for method, _ in network.requests) <= ALL_DENIED + WRITES


def test_an_object_that_may_not_be_deleted_keeps_no_other_and_no_upload(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several that are deleted by one request nothing tells which it was."""
    denied, *others = few(make_variant)
    store, later, delete = machine("one", folder_url), make_variant((9, 9, 9, 9)), obstore.delete_async

    async def forbidden(bucket: Any, paths: Sequence[str]) -> None:
        if any(denied.key.digest in path for path in paths):
            raise PermissionDeniedError("Forbidden")
        await delete(bucket, paths)

    for variant in (denied, *others):
        store.put(variant)
    settled(store)
    monkeypatch.setattr(obstore, "delete_async", forbidden)
    monkeypatch.setattr(journal, "FIRST_S", journal.LONGEST_S)
    store.drop_seeing(denied.key.context)
    store.put(later)
    wait_until(lambda: store._journal.waiting() == {Kind.DELETE: 1} and store._courier._idle, 60)
    assert digests_in(store) == {denied.key.digest, later.key.digest}
    assert store._bucket.writing.fine
    monkeypatch.setattr(obstore, "delete_async", delete)
    again(store)
    settled(store)
    assert denied.key.digest not in digests_in(store)


@pytest.mark.parametrize("number", [1, 2])
def test_what_is_denied_is_due_again_and_ends(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Whether one entry's deletion waits or several of one folder."""
    variants, store, delete = few(make_variant)[:number], machine("one", folder_url), obstore.delete_async
    for variant in variants:
        store.put(variant)
    settled(store)

    async def forbidden(bucket: Any, paths: Sequence[str]) -> None:
        raise PermissionDeniedError("Forbidden")

    monkeypatch.setattr(obstore, "delete_async", forbidden)
    for variant in variants:
        store.delete(variant.key)
    wait_until(lambda: store._courier._idle, 60)
    assert store._journal.waiting() == {Kind.DELETE: number}
    monkeypatch.setattr(obstore, "delete_async", delete)
    again(store)
    settled(store)
    assert digests_in(store) == set()


@pytest.mark.parametrize("way", ["texts", "family"])
def test_what_is_put_again_beside_what_may_not_be_deleted_stays(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """However often that one is tried again."""
    denied, other = (make_variant(context=(name,)) for name in ("denied", "other"))
    store, delete = machine("one", folder_url), obstore.delete_async

    async def forbidden(bucket: Any, paths: Sequence[str]) -> None:
        if any(denied.key.digest in path for path in paths):
            raise PermissionDeniedError("Forbidden")
        await delete(bucket, paths)

    monkeypatch.setattr(obstore, "delete_async", forbidden)
    for variant in (denied, other):
        store.put(variant)
    settled(store)
    if way == "texts":
        store.drop_seeing(["denied", "other"])
    else:
        store.drop_families({other.key.family: ()})
    wait_until(lambda: store._courier._idle, 60)
    assert digests_in(store) == {denied.key.digest}
    store.put(other)
    wait_until(lambda: Kind.UPLOAD not in store._journal.waiting() and store._courier._idle, 60)
    again(store)
    wait_until(lambda: store._courier._idle, 60)
    assert digests_in(store) == {denied.key.digest, other.key.digest}
    assert store._journal.has_gone(denied.key, set())
    store.put(denied)
    settled(store)
    monkeypatch.setattr(obstore, "delete_async", delete)
    again(store)
    settled(store)
    assert digests_in(store) == {denied.key.digest, other.key.digest}, "it is wanted again"


@pytest.mark.parametrize("number", [ALL_DENIED, 3 * ALL_DENIED])
def test_neighbours_that_may_not_be_deleted_keep_no_other_and_no_upload(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Four of twelve beside one another, or all."""
    variants, store, delete = few(make_variant), machine("one", folder_url), obstore.delete_async
    for variant in variants:
        store.put(variant)
    settled(store)
    locked = set[str]()

    async def forbidden(bucket: Any, paths: Sequence[str]) -> None:
        locked.update(() if locked else paths[:number])
        if not locked.isdisjoint(paths):
            raise PermissionDeniedError("Forbidden")
        await delete(bucket, paths)

    monkeypatch.setattr(obstore, "delete_async", forbidden)
    store.drop_seeing(variants[0].key.context)
    wait_until(lambda: store._journal.waiting() == {Kind.DELETE: number} and store._courier._idle, 60)
    assert {*names_in(store)} == locked
    assert store._bucket.writing.fine and store._bucket.deleting.fine
    assert [told.count("may not be deleted") for told in store._bucket.take_told()] == [1]


def test_a_bucket_of_which_nothing_may_be_deleted_is_written_to_all_the_same(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions wait until more may be in vain."""
    store, variant, asked = machine("one", folder_url), make_variant(), list[int]()

    async def forbidden(bucket: Any, paths: Sequence[str]) -> None:
        asked.append(len(paths))
        raise PermissionDeniedError("Forbidden")

    monkeypatch.setattr(obstore, "delete_async", forbidden)
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)
    names = {f"name-{number}" for number in range(4 * ALL_LOCKED)}
    assert store._bucket.submit(store._bucket.delete(names)).result(60) == names
    assert asked.count(1) == ALL_LOCKED and len(asked) < 3 * ALL_LOCKED
    asked.clear()
    assert store._bucket.submit(store._bucket.delete(["another"])).result(60) == {"another"}
    assert not asked and "cannot be deleted from now" in store._bucket.take_told()[-1]
    with pytest.raises(RemoteError, match="left alone"):
        store._bucket.submit(store._bucket.probe()).result(60)
    store.put(variant)
    settled(store)
    assert digests_in(store) == {variant.key.digest}
    store.delete(variant.key)
    wait_until(lambda: store._courier._idle, 60)
    assert store._journal.waiting() == {Kind.DELETE: 1}


def test_others_go_for_what_may_not_where_a_bucket_is_beyond_its_budget(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, *others = few(make_variant)
    putting, delete = machine("putting", folder_url), obstore.delete_async
    for variant in (locked, *others):
        putting.put(variant)
        settled(putting)
    nbytes = putting._bucket.submit(usage(putting._bucket)).result(60).nbytes

    async def forbidden(bucket: Any, paths: Sequence[str]) -> None:
        if any(locked.key.digest in path for path in paths):
            raise PermissionDeniedError("Forbidden")
        await delete(bucket, paths)

    monkeypatch.setattr(obstore, "delete_async", forbidden)
    lowering = lowered(putting._bucket, 5 * nbytes // len((locked, *others)), ORDERS["fifo"], ToldUses(time()))
    assert putting._bucket.submit(lowering).result(60) == len(others) - 3
    assert digests_in(putting) == {variant.key.digest for variant in (locked, *others[-3:])}
