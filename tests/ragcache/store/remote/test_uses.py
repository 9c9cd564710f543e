"""What goes from a bucket that is over its budget is what no machine asks for: each tells the others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from ragcache.address import prefix_name
from ragcache.store.eviction import ORDERS
from ragcache.store.remote import courier
from ragcache.store.remote.names import ObjectPlace
from ragcache.store.remote.shared_uses import _ROW, FOLDER, ToldUses, encoded
from ragcache.store.remote.store import SharedStore
from ragcache.store.remote.use_record import HALF_S, KEPT_S, MOST_TOLD, TOLD_S, Used, UseRecord
from ragcache.types import Variant
from tests.orders import ORDER_ROWS
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled

NOW = 1_800_000_000.0
URL = "s3://shelf"


def place(digest: str, size: int = 100, age_s: float = 0.0) -> ObjectPlace:
    written = datetime.fromtimestamp(NOW - age_s, UTC)
    return ObjectPlace(f"ab/{digest}", "f" * 64, digest, "all", size, written, "1")


def digest_of(number: int) -> str:
    return f"{number:016x}" + "0" * 48


def told(*uses: Used) -> ToldUses:
    return ToldUses.of([encoded(uses)], NOW)


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
    seen = ToldUses.of([telling.read_bytes()], time.time()).evictable(place(variant.key.digest))
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


def test_uses_are_told_from_time_to_time(tmp_path: Path, make_variant: Any) -> None:
    now, key = [NOW], make_variant().key
    record, other = UseRecord(tmp_path, URL, lambda: now[0]), UseRecord(tmp_path, URL, lambda: now[0])
    assert not record.count(key) and record.due() is None
    now[0] += TOLD_S + 1
    assert record.count(key)
    assert record.due() is not None
    assert not record.count(key) and record.due() is None
    now[0] += 1
    other.count(key)
    assert other.due() is None, "one program has told for the folder"
    now[0] += TOLD_S + 1
    found = other.due()
    assert found is not None and [one.count for one in found[1]] == [3], "and what nobody wrote down yet"
    now[0] += TOLD_S + 1
    assert record.due() is not None
    now[0] += TOLD_S + 1
    assert record.due() is None, "there is nothing new to tell"


def test_uses_fade_and_are_forgotten(tmp_path: Path, make_variant: Any) -> None:
    now, keys = [NOW], [make_variant((number,) * 3).key for number in range(2)]
    record = UseRecord(tmp_path, URL, lambda: now[0])
    record.count(keys[0])
    record.keep()
    now[0] += HALF_S
    for key in keys:
        record.count(key)
    found = record.due(at_once=True)
    assert found is not None
    assert {one.name: (one.count, one.later) for one in found[1]} == {
        keys[0].digest[:16]: (2, 1.5),
        keys[1].digest[:16]: (1, 1),
    }
    now[0] += KEPT_S + 1
    record.count(keys[1])
    found = record.due(at_once=True)
    assert found is not None and [one.name for one in found[1]] == [keys[1].digest[:16]]


def test_a_folder_remembers_so_many_and_no_more(
    tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragcache.store.remote.use_record.MOST_TOLD", 3)
    monkeypatch.setattr("ragcache.store.remote.use_record.MOST_COUNTED", 4)
    now, keys = [NOW], [make_variant((number,) * 3).key for number in range(9)]
    record = UseRecord(tmp_path, URL, lambda: now[0])
    for start in (0, 4):
        now[0] += 1
        for key in keys[start : start + 5]:
            record.count(key)
        record.keep()
    found = record.due(at_once=True)
    assert found is not None and {one.name for one in found[1]} < {key.digest[:16] for key in keys[4:8]}
    assert len(found[1]) == 3


def test_a_machine_that_is_gone_is_forgotten(
    machine: OpenMachine, folder_url: str, tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = machine("one", folder_url)
    store.use(make_variant().key)
    tell(store)
    uses = store._courier._uses

    def all_told() -> ToldUses:
        return store._bucket.submit(uses.all_told(anew=True)).result(60)

    assert len(all_told().rows) == 1 and len(tellings(tmp_path / "bucket")) == 1
    monkeypatch.setattr(uses, "_clock", lambda: time.time() + KEPT_S + 60)
    all_told()
    assert not tellings(tmp_path / "bucket")


def test_a_bucket_that_cannot_be_written_to_costs_nobody_anything(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    store = machine("one", folder_url, order="value")
    variant = make_variant()
    filled(store, [variant])
    store._bucket.writing.failed("forbidden")
    store._bucket.listing.failed("forbidden")
    tell(store)
    assert store._bucket.submit(store._courier._uses.all_told(anew=True)).result(60).rows.size == 0
    assert store.get(variant.key) is not None


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
    found = store._bucket.submit(store._courier._uses.all_told(anew=True)).result(60)
    seen = found.evictable(place(used.key.digest))
    assert seen.uses.count == 2
    for name in ("count", "later", "worth", "last"):
        assert np.isfinite(found.rows[name]).all() and (found.rows[name] >= 0).all()
    assert found.rows["last"].max() <= time.time() + 61
    filled(store, [make_variant((8, 8, 8))])  # which goes by them


@given(
    some.lists(
        some.lists(
            some.tuples(some.integers(0, 6), some.integers(1, 50), some.floats(0, 50), some.integers(0, 10**6)),
            max_size=6,
        ),
        max_size=4,
    )
)
def test_all_machines_together_are_their_sums(machines: list[list[tuple[int, int, float, int]]]) -> None:
    sent = [
        encoded([Used(digest_of(number)[:16], count, later, 2 * count, NOW - age) for number, count, later, age in one])
        for one in machines
    ]
    found = ToldUses.of(sent, NOW)
    for number in range(8):
        mine = [row for one in machines for row in one if row[0] == number]
        uses = found.evictable(place(digest_of(number), age_s=1e9)).uses
        assert uses.count == max(1, sum(count for _, count, _, _ in mine))
        assert uses.worth == max(1, 2 * sum(count for _, count, _, _ in mine))
        later = sum(later * 0.5 ** (age / HALF_S) for _, _, later, age in mine)
        assert uses.later == pytest.approx(later, rel=1e-4, abs=1e-6)


def test_what_nobody_tells_of_counts_as_one_use_when_it_was_written() -> None:
    seen = told().evictable(place(digest_of(1), age_s=HALF_S))
    assert (seen.uses.count, seen.uses.later, seen.uses.worth) == (1, 0.5, 1)
    assert seen.used == seen.came == int(1000 * (NOW - HALF_S))


@pytest.mark.parametrize("order", ORDERS)
def test_each_order_serves_a_bucket(order: str) -> None:
    uses = [Used(digest_of(n)[:16], 3 + n % 4, 1 + (5 * n) % 7, 3 + (3 * n) % 5, NOW - 1000 * n) for n in range(9)]
    seen = [told(*uses).evictable(place(digest_of(n), 100 + 37 * (n % 3), 5000.0 * n)) for n in range(12)]
    lowest = min(seen, key=lambda one: (ORDERS[order](one), one.used))
    assert lowest == ORDER_ROWS[order](seen)
