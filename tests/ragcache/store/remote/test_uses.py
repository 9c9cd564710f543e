"""What goes from a bucket that is over its budget is what no machine asks for: each tells the others."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest

from ragcache.address import prefix_name
from ragcache.errors import RemoteError
from ragcache.store.remote import courier, health, shared_uses
from ragcache.store.remote.shared_uses import _ROW, FOLDER, ToldUses, _decoded, encoded
from ragcache.store.remote.store import SharedStore
from ragcache.store.remote.use_record import KEPT_S, MOST_TOLD
from ragcache.types import Variant
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, place, settled


def tell(store: SharedStore) -> None:
    store._courier._uses.tell(at_once=True)


def tellings(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("*"))


def filled(store: SharedStore, variants: list[Variant]) -> None:
    for variant in variants:
        store.put(variant)
        settled(store)


@pytest.mark.parametrize("order", ["value", "lfu", "fifo"])
def test_what_another_machine_asks_for_stays(
    machine: OpenMachine, folder_url: str, make_variant: Any, order: str
) -> None:
    """Though it was put there first; where the order counts uses."""
    probe = machine("probe", f"{folder_url}-probe")
    probe.put(make_variant())
    size = probe.stats()[-1].nbytes
    asking = machine("asking", folder_url, order=order)
    first = make_variant((99, 99, 99))
    filled(asking, [first])
    for _ in range(3):
        assert asking.get(first.key) is not None
    tell(asking)
    putting = machine("putting", folder_url, order=order, remote=4 * size)
    filled(putting, [make_variant((number,) * 3) for number in range(9)])
    assert len(digests_in(putting)) <= 4
    assert (first.key.digest in digests_in(putting)) == (order != "fifo")


def test_uses_are_told_of_a_variant_of_many(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    """So that a boilerplate's often used one is not displaced by those that come after it."""
    store = machine("one", folder_url, order="value")
    used, *others = [make_variant(context=(f"c{number}",)) for number in range(courier.VARIANTS + 3)]
    filled(store, [used])
    for _ in range(3):
        store.use(used.key)
    tell(store)
    filled(store, others)
    assert used.key.digest in digests_in(store) and len(digests_in(store)) == courier.VARIANTS


def test_a_machine_tells_what_all_its_programs_used_and_did_before(
    machine: OpenMachine, folder_url: str, tmp_path: Path, make_variant: Any
) -> None:
    variant = make_variant()
    before = machine("one", folder_url)
    before.put(variant)
    before.use(variant.key)
    before.close()
    here, beside = machine("one", folder_url), machine("one", folder_url)
    for store in (here, beside):
        store.use(variant.key)
        store.credit(variant.key, 4.0)
        tell(store)
    (telling,) = tellings(tmp_path / "bucket")
    seen = ToldUses.of([_decoded(telling.read_bytes())], time.time()).evictable(place(variant.key.digest))
    assert (seen.uses.count, seen.uses.worth) == (4, 10), "put, used, and used twice with more worth"
    assert seen.uses.later == pytest.approx(4, abs=0.01)


def test_only_what_other_machines_may_have_is_told(
    machine: OpenMachine, folder_url: str, tmp_path: Path, make_variant: Any
) -> None:
    """Not the prefixes of somebody's conversation, and not each head's rank."""
    store, rank = machine("one", folder_url), machine("rank", folder_url, heads=slice(1, 2))
    store.use(make_variant(fingerprint=prefix_name("engine")).key)
    rank.use(make_variant().key)
    for one in (store, rank):
        tell(one)
    assert not tellings(tmp_path / "bucket")


def test_what_is_deleted_is_told_no_more(
    machine: OpenMachine, folder_url: str, tmp_path: Path, make_variant: Any
) -> None:
    store = machine("one", folder_url)
    one, family, seen, stays = (make_variant((number,) * 3) for number in range(4))
    filled(store, [one, family, seen, stays])
    store._record.keep()
    tell(store)
    store.delete(one.key)
    store.drop_families({family.key.family: set()})
    store.drop_chunk(seen.key.fingerprint, seen.key.system, seen.key.chunk, elsewhere=True)
    settled(store)
    tell(store)
    (telling,) = tellings(tmp_path / "bucket")
    assert telling.read_bytes() == encoded(store._record.used())
    assert [used.name for used in store._record.used()] == [stays.key.digest[:16]]


def test_what_never_came_to_the_bucket_is_forgotten_too(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    store = machine("one", folder_url)
    variants = [make_variant((number,) * 3, context=("c",), plain=True) for number in range(3)]
    store._bucket.writing.failed("away")
    for variant in variants:
        store.put(variant)
    store._record.keep()
    first, second, third = (variant.key for variant in variants)
    store.drop_chunk(first.fingerprint, first.system, first.chunk)
    store.drop_families({second.family: set()})
    store.drop_seeing({third.chunk, "c"})
    store._record.keep()
    assert store._record.used() == []


@pytest.mark.parametrize(("order", "left"), [("fifo", 0), ("value", 5)])
def test_a_budget_is_kept_though_nobody_can_read_what_others_use(
    machine: OpenMachine, folder_url: str, make_variant: Any, order: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once by an order that does not ask for it, and else after some patience, which the log tells of."""
    other = machine("other", folder_url)
    other.use(make_variant((9, 9)).key)
    tell(other)
    store, read = machine("one", folder_url, order=order, remote=1), obstore.get_range_async

    async def refused(where: Any, path: str, **span: int) -> Any:
        if path.endswith(other._record.machine):
            raise PermissionError(path)
        return await read(where, path, **span)

    monkeypatch.setattr(obstore, "get_range_async", refused)
    filled(store, [make_variant((number,) * 3) for number in range(5)])
    assert len(digests_in(store)) == left
    monkeypatch.setattr(courier, "PATIENT_S", 0.0)
    filled(store, [make_variant((5, 5, 5))])
    assert digests_in(store) == set()


def all_told(store: SharedStore) -> ToldUses:
    return store._bucket.submit(store._courier._uses.all_told(anew=True)).result(60)


def test_a_machine_that_is_gone_is_forgotten(
    machine: OpenMachine, folder_url: str, tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the bucket's clock, whatever a machine's own says."""
    stores = [machine(name, folder_url) for name in ("one", "two")]
    for number, store in enumerate(stores):
        store.use(make_variant((number,) * 3).key)
        tell(store)
    monkeypatch.setattr(shared_uses, "time", lambda: time.time() + 2 * KEPT_S)
    assert len(all_told(stores[0]).rows) == 2 == len(tellings(tmp_path / "bucket"))
    gone = tmp_path / "bucket" / FOLDER / stores[1]._record.machine
    os.utime(gone, (0, time.time() - KEPT_S - 60))
    all_told(stores[0])
    assert tellings(tmp_path / "bucket") == [tmp_path / "bucket" / FOLDER / stores[0]._record.machine]


def test_a_bucket_that_cannot_be_used_costs_nobody_anything(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    store = machine("one", folder_url, order="value")
    variant = make_variant()
    filled(store, [variant])
    for way in (store._bucket.writing, store._bucket.listing):
        way.failed("forbidden")
    tell(store)
    assert store._bucket.submit(store._courier._uses.all_told()).result(60).rows.size == 1, "its own"
    assert store.get(variant.key) is not None
    for way in (store._bucket.writing, store._bucket.listing):
        way.succeeded()
    tell(store)
    assert all_told(store).rows.size == 1


def test_what_is_known_stays_known_while_it_cannot_be_read(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody who knows nothing decides what goes."""
    monkeypatch.setattr(health, "PAUSE_S", health.LONGEST_PAUSE_S)  # or a slow machine may meet the next try
    told_of, asks = machine("one", folder_url), machine("two", folder_url, order="value")
    told_of.use(make_variant().key)
    tell(told_of)
    asks.use(make_variant((8, 8)).key)
    asks._record.keep()
    asks._bucket.reading.failed("stalled")
    with pytest.raises(RemoteError, match="cannot be read"):
        all_told(asks)
    alone = asks._bucket.submit(asks._courier._uses.all_told()).result(60)
    assert alone.rows.size == 1, "its own are here"
    asks._bucket.reading.succeeded()
    assert all_told(asks).rows.size == 2
    told_of.use(make_variant((5, 5)).key)
    tell(told_of)
    asks._bucket.reading.failed("stalled")
    assert all_told(asks).rows.size == 2, "what it told before"
    asks._bucket.reading.succeeded()
    assert all_told(asks).rows.size == 3


def test_a_telling_that_nobody_may_read_keeps_nobody_from_the_kv(
    machine: OpenMachine, folder_url: str, tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [machine(name, folder_url) for name in ("one", "two", "three")]
    for number, store in enumerate(stores):
        store.use(make_variant((number,) * 3).key)
        tell(store)
    read = obstore.get_range_async

    async def refused(where: Any, path: str, **span: int) -> Any:
        if path.endswith(stores[2]._record.machine):
            raise PermissionError(path)
        return await read(where, path, **span)

    monkeypatch.setattr(obstore, "get_range_async", refused)
    assert all_told(stores[0]).rows.size == 2
    assert stores[0]._bucket.reading.fine


def test_uploads_beside_one_another_all_know_what_is_told(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    """By a machine that has asked for nothing yet."""
    used = [make_variant((number,) * 3) for number in range(8)]
    store = machine("one", folder_url)
    for variant in used:
        beside = [make_variant(variant.ids, context=(f"c{one}",)) for one in range(courier.VARIANTS - 1)]
        filled(store, [make_variant(variant.ids, context=("used",)), *beside])
    used = [make_variant(variant.ids, context=("used",)) for variant in used]
    for variant in used * 5:
        store.use(variant.key)
    tell(store)
    fresh = machine("two", folder_url, order="value")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fresh._courier, "wake", lambda: None)
        for variant in used:
            fresh.put(make_variant(variant.ids, context=("new",)))
    fresh._courier.wake()
    settled(fresh)
    assert {variant.key.digest for variant in used} <= digests_in(store)


def test_what_is_told_by_whoever_can_write_breaks_nothing(
    machine: OpenMachine, folder_url: str, tmp_path: Path, make_variant: Any
) -> None:
    store = machine("one", folder_url, order="value", remote=1)
    used = make_variant((7, 7, 7))
    filled(store, [used])
    store.use(used.key)
    tell(store)
    (ours,) = tellings(tmp_path / "bucket")
    rows = np.zeros(3, _ROW)
    rows["count"], rows["later"], rows["worth"] = [np.nan, np.inf, -1], [-np.inf, np.nan, 1e38], [np.nan, -5, np.inf]
    rows["last"] = [0, 2**32 - 1, 5]
    bad: Mapping[str, bytes] = {
        "numbers": b"RCUSES01" + rows.tobytes(),
        "cut": ours.read_bytes()[:-1],
        "noise": bytes(range(256)),
        "nothing": b"",
        "later-version": b"RCUSES02" + rows.tobytes(),
        "large": b"RCUSES01" + bytes(_ROW.itemsize * (MOST_TOLD + 1)),
    }
    for name, data in bad.items():
        (ours.parent / name).write_bytes(data)
    (ours.parent / "folder").mkdir()
    (ours.parent / "folder" / "deep").write_bytes(b"x")
    found = all_told(store)
    seen = found.evictable(place(used.key.digest))
    assert seen.uses.count == 2
    for name in ("count", "later", "worth", "last"):
        assert np.isfinite(found.rows[name]).all() and (found.rows[name] >= 0).all()
    assert found.rows["last"].max() <= time.time() + 61
    filled(store, [make_variant((8, 8, 8))])  # which goes by them
