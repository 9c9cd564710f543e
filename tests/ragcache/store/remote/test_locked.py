"""More objects that may not be deleted than are taken for single ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from time import time
from typing import Any

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError

from ragcache.errors import RemoteError
from ragcache.store.eviction import ORDERS
from ragcache.store.remote import bucket, courier, health
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.journal import Kind, RemoteTask
from ragcache.store.remote.names import ObjectPlace
from ragcache.store.remote.shared_uses import ToldUses
from ragcache.store.remote.store import SharedStore
from ragcache.store.remote.sweep import lowered, usage
from ragcache.types import Variant
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled
from tests.waiting import wait_until

MOST = 8  # in a row, until nothing is deleted for a while


class Locks:
    """Digests of what a bucket keeps; as S3, it deletes what else is named beside them."""

    def __init__(self) -> None:
        self.digests = set[str]()
        self.asked = list[str]()  # of which it was told no
        self._delete = obstore.delete_async

    async def delete(self, store: Any, paths: Sequence[str]) -> None:
        kept = [path for path in paths if any(digest in path for digest in self.digests)]
        if going := [path for path in paths if path not in kept]:
            await self._delete(store, going)
        if kept:
            self.asked += kept
            raise PermissionDeniedError("AccessDenied")


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Locks:
    locks = Locks()
    monkeypatch.setattr(obstore, "delete_async", locks.delete)
    monkeypatch.setattr(bucket, "ALL_LOCKED", MOST)
    return locks


def filled(store: SharedStore, make_variant: Any, number: int, text: str) -> list[Variant]:
    """Entries that this text had a part in."""
    variants = [make_variant((one, number), context=(text,), plain=True) for one in range(number)]
    for variant in variants:
        store.put(variant)
    settled(store)
    return variants


def digests(variants: Sequence[Variant]) -> set[str]:
    return {variant.key.digest for variant in variants}


def again(store: SharedStore) -> None:
    """What was put off is tried."""
    with store._journal._open() as connection:
        connection.execute("UPDATE tasks SET due = due - 86400, claimed = 0")
    store._courier.wake()
    wait_until(lambda: store._courier._idle, 60)


def leave(store: SharedStore, variants: Sequence[Variant]) -> None:
    """They may not be deleted, as somebody has found out."""
    keys = [variant.key for variant in variants]
    store._journal.narrow([], [RemoteTask(Kind.DELETE, ("", key.family, key.digest)) for key in keys])


def test_what_may_not_be_deleted_keeps_no_later_deletion_from_the_bucket(
    machine: OpenMachine, folder_url: str, make_variant: Any, locks: Locks
) -> None:
    """However much of it there is, and however often it is tried again."""
    store = machine("one", folder_url)
    locked = filled(store, make_variant, 2 * MOST, "locked")
    filled(store, make_variant, 2, "other")
    locks.digests = digests(locked)
    leave(store, locked)
    for _ in range(3):
        again(store)
    assert locks.asked and store._bucket.deleting.fine
    store.drop_seeing(["other"])
    wait_until(lambda: store._courier._idle, 60)
    assert store._journal.waiting() == {Kind.DELETE: len(locked)}
    assert digests_in(store) == digests(locked)


def test_what_may_not_be_deleted_is_asked_for_seldom(
    machine: OpenMachine, folder_url: str, make_variant: Any, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)  # or a slow machine may meet the next try
    store = machine("one", folder_url)
    locked = filled(store, make_variant, 3 * MOST, "a")
    locks.digests = digests(locked)
    leave(store, locked)
    again(store)
    again(store)
    assert len({*locks.asked}) <= 3 * MOST and store._bucket.deleting_again.left_s > 0
    assert len(locks.asked) <= 3 * MOST + MOST, "singly, until the others wait"
    store._bucket.deleting_again.succeeded()
    locks.digests = set()
    again(store)
    settled(store)
    assert digests_in(store) == set()


@pytest.mark.parametrize("way", ["texts", "families"])
def test_a_deletion_ends_however_much_of_it_may_not_go(
    machine: OpenMachine, folder_url: str, make_variant: Any, locks: Locks, way: str
) -> None:
    """What is put again of its texts would be deleted again at each try."""
    store = machine("one", folder_url)
    locked, others = filled(store, make_variant, 2 * MOST, "locked"), filled(store, make_variant, 4, "other")
    locks.digests = digests(locked)
    if way == "texts":
        store.drop_seeing(["locked", "other"])
    else:
        store.drop_families({variant.key.family: () for variant in (*locked, *others)})
    wait_until(lambda: store._courier._idle, 60)
    assert store._journal.waiting().keys() == {Kind.DELETE}

    def tried() -> bool:
        store._bucket.deleting_again.succeeded()
        again(store)
        return digests_in(store) == digests(locked)

    wait_until(tried, 60)  # what was not asked for goes then, which is not the last for ever
    for variant in others:
        store.put(variant)
    wait_until(lambda: Kind.UPLOAD not in store._journal.waiting() and store._courier._idle, 60)
    store._bucket.deleting_again.succeeded()
    again(store)
    assert digests_in(store) == digests([*locked, *others])


def test_what_was_to_be_put_before_its_text_went_is_deleted_where_it_may_not_be_yet(
    machine: OpenMachine, folder_url: str, make_variant: Any, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there already, and there is no file to be put: nothing would wait for it."""
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)
    store = machine("one", folder_url)
    (variant,) = filled(store, make_variant, 1, "a")
    locks.digests = digests([variant])
    store._bucket.listing.failed("away")
    store.put(variant)
    store.drop_seeing(["a"])
    assert store._journal.waiting() == {Kind.UPLOAD: 1, Kind.TRACES: 1}
    store._bucket.listing.succeeded()
    again(store)
    assert store._journal.waiting() == {Kind.DELETE: 1}
    locks.digests = set()
    again(store)
    settled(store)
    assert digests_in(store) == set()


def test_a_bucket_comes_within_its_budget_though_much_of_what_goes_first_may_not(
    machine: OpenMachine, folder_url: str, make_variant: Any, locks: Locks
) -> None:
    """What it denied before is not asked for again each time."""
    store = machine("one", folder_url)
    locked = filled(store, make_variant, 2 * MOST, "locked")
    others = filled(store, make_variant, 2 * MOST + 1, "other")
    locks.digests = digests(locked)
    nbytes = store._bucket.submit(usage(store._bucket)).result(60).nbytes
    gone = list[int]()
    for _ in range(4):
        lowering = lowered(store._bucket, int(0.9 * nbytes), ORDERS["fifo"], ToldUses(time()))
        gone.append(store._bucket.submit(lowering).result(60))
        store._bucket.deleting._until = 0.0  # the pause is over
    assert gone[0] == 0 and 0 < sum(gone) < len(others)
    assert store._bucket.submit(usage(store._bucket)).result(60).nbytes <= 0.9 * nbytes


def prefixes_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of what is listed from now on."""
    listed, places = list[str](), Bucket.places

    def counted(self: Bucket, prefix: str = "") -> AsyncGenerator[list[ObjectPlace]]:
        listed.append(prefix)
        return places(self, prefix)

    monkeypatch.setattr(Bucket, "places", counted)
    return listed


def test_a_bucket_is_lowered_further_when_a_pause_ends(
    machine: OpenMachine, folder_url: str, make_variant: Any, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next upload, however small: far more may be locked than one walk finds out."""
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)
    before = machine("before", folder_url)
    locks.digests = digests(filled(before, make_variant, 3 * MOST, "a"))
    nbytes = before._bucket.submit(usage(before._bucket)).result(60).nbytes
    store, listed = machine("one", folder_url, remote=5 * nbytes // 6, order="fifo"), prefixes_of(monkeypatch)
    for walks, text in enumerate("bc", 1):
        store._bucket.deleting._until = 0.0
        filled(store, make_variant, 1, text)
        assert listed.count("") == walks


def test_nothing_is_listed_for_a_budget_while_nothing_may_be_deleted(
    machine: OpenMachine, folder_url: str, make_variant: Any, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads go on meanwhile, and each would list the whole bucket."""
    store, listed = machine("one", folder_url, remote=1, order="fifo"), prefixes_of(monkeypatch)
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)
    store._bucket.deleting.failed("locked")
    variants = [variant for number in (3, 4) for variant in filled(store, make_variant, number, "a")]
    assert digests_in(store) == digests(variants)
    assert "" not in listed[:-1]  # but by this test
    store._bucket.deleting.succeeded()
    filled(store, make_variant, 1, "a")
    assert digests_in(store) == set()


def test_a_bucket_that_fails_as_it_is_lowered_is_counted_after_as_much_more(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = machine("one", folder_url, remote=1 << 20, order="fifo")

    async def failed(*told: Any) -> int:
        raise RemoteError("it fails")

    monkeypatch.setattr(courier, "lowered", failed)
    filled(store, make_variant, 1, "a")
    assert store._courier._uncounted == 0


def test_what_was_denied_is_known_for_a_while_and_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MOST_KNOWN", 2)
    now = 0.0
    way = health.Health("deleted from", "s3://here", lambda: now)
    for path in "abac":
        way.refused(path, "locked")
    assert [path for path in "abcd" if way.knows(path)] == ["a", "c"]
    now += health.KNOWN_S
    assert not any(map(way.knows, "abc"))
