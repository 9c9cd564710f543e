"""S3 at 50 ms, and a network that fails in every way: slower, never wrong, told once, and tried again."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from ragcache.errors import RemoteError, StoreError
from ragcache.store.findings import Flaw
from ragcache.store.remote import arrivals, bucket, catalog
from ragcache.store.remote import store as store_module
from ragcache.store.remote.health import LONGEST_PAUSE_S, PAUSE_S, Health
from ragcache.store.remote.journal import Kind
from tests.buckets import Proxy, S3Bucket
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled
from tests.waiting import wait_until

FAULTS = ["reset", "500", "truncated", "stall"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a machine that is busy, save where a test is about it."""
    monkeypatch.setattr(store_module, "LOOK_S", 20.0)


def read_all(store: Any, variants: list[Any]) -> None:
    for variant in variants:
        fetched = store.get(variant.key)
        assert fetched is not None
        assert torch.equal(fetched.variant.k, variant.k)


def test_s3_brings_what_was_put(machine: OpenMachine, far: S3Bucket, make_variant: Any) -> None:
    variants = [make_variant((number,) * 3) for number in range(4)]
    one, other = machine("one", far.url), machine("other", far.url)
    for variant in variants:
        one.put(variant)
    settled(one)
    read_all(other, variants)
    other.drop_seeing({"c0"})
    settled(other)
    assert digests_in(one) == set()


def test_a_large_entry_goes_and_comes_in_parts(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any
) -> None:
    large = make_variant(tuple(range(1500)), layers=16, heads=4, dim=32)  # 24 MB
    one, other = machine("one", far.url), machine("other", far.url)
    one.put(large)
    settled(one)
    assert any("uploadId" in path for method, path in network.requests if method == "PUT"), "multipart"
    network.requests.clear()
    read_all(other, [large])
    assert len([path for method, path in network.requests if method == "GET"]) >= 2 + large.nbytes // bucket.PART


def test_a_prompt_asks_for_all_its_chunks_at_once(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any
) -> None:
    """Names of all, before the header of any: two round trips, however many chunks."""
    families = [make_variant((number,) * 3).key.family for number in range(10)]
    one, other = machine("one", far.url), machine("other", far.url)
    for number in range(10):
        one.put(make_variant((number,) * 3))
    settled(one)
    network.requests.clear()
    other.look_ahead(families)
    assert all(len(other.variants(family)) == 1 for family in families)
    assert len(network.requests) == 20
    first = [path for _, path in network.requests[:10]]
    assert sum("list-type=2" in path for path in first) >= 8
    network.requests.clear()
    assert all(len(other.variants(family)) == 1 for family in families)
    lacking = make_variant((77,)).key.family
    assert other.variants(lacking) == []
    assert other.variants(lacking) == []
    assert len(network.requests) == 1, "what it holds and lacks is remembered"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bucket_that_fails_costs_no_more_than_itself(
    machine: OpenMachine,
    far: S3Bucket,
    network: Proxy,
    make_variant: Any,
    fault: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variants = [make_variant((number,) * 3) for number in range(3)]
    one = machine("one", far.url)
    for variant in variants:
        one.put(variant)
    settled(one)
    one._courier.close()  # or it may meet the fault too, and tell it
    # Only now: a busy machine may take as long for what is in order.
    monkeypatch.setattr(store_module, "LOOK_S", 0.3)
    monkeypatch.setattr(bucket, "_STALL_S", 0.2)
    monkeypatch.setattr(bucket, "_RETRY_S", 0.5)
    network.fault = lambda method, path: fault
    store, mine = machine("other", far.url), make_variant((9, 9, 9))
    flaws = list[Flaw]()
    with caplog.at_level(logging.WARNING):
        for variant in variants:
            assert store.variants(variant.key.family, flaws) == []
            assert store.get(variant.key) is None
        store.put(mine)
        assert store.get(mine.key) is not None
        store.drop_seeing({"c0"})
        wait_until(lambda: any("cannot be listed now" in message for message in caplog.messages), 60)
        store.variants(make_variant((5,)).key.family, flaws)
    told = [flaw for flaw in flaws if "cannot be listed now" in flaw.reason]
    assert len(told) == 1, "once, however often it fails"
    assert sum("cannot be listed now" in message for message in caplog.messages) == 1
    assert store._journal.waiting()


@pytest.mark.parametrize("fault", FAULTS)
def test_single_faults_are_tried_again(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_STALL_S", 0.5)
    monkeypatch.setattr(bucket, "_RETRY_S", 30.0)
    count = [0]

    def every_third(method: str, path: str) -> str:
        count[0] += 1
        return fault if count[0] % 3 == 0 and method != "DELETE" else ""

    variants = [make_variant((number,) * 3) for number in range(4)]
    network.fault = every_third
    one, other = machine("one", far.url), machine("other", far.url)
    for variant in variants:
        one.put(variant)
    wait_until(lambda: not one._journal.waiting(), 120, lambda: str(one._journal.waiting()))
    network.fault = lambda method, path: ""
    assert digests_in(one) == {variant.key.digest for variant in variants}
    network.fault = every_third
    for variant in variants:
        wait_until(lambda key=variant.key: _brought(other, key), 60)
    read_all(other, variants)


def _brought(store: Any, key: Any) -> bool:
    try:
        return store.get(key) is not None
    except StoreError:  # told, and asked for again
        return False
    finally:
        for health in (store._bucket.listing, store._bucket.reading):
            health.succeeded()


def test_a_body_that_stalls_is_not_waited_for_long(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragcache.store.remote.health.PAUSE_S", LONGEST_PAUSE_S)  # or a slow machine meets its end
    variant = make_variant()
    one, other = machine("one", far.url), machine("other", far.url)
    one.put(variant)
    settled(one)
    assert len(other.variants(variant.key.family)) == 1
    network.fault = lambda method, path: "stall" if method == "GET" and "list-type" not in path else ""
    monkeypatch.setattr(arrivals, "FETCH_S", 0.2)
    with pytest.raises(RemoteError, match="did not come"):
        other.get(variant.key)
    with pytest.raises(RemoteError, match="left alone for a while"):
        other._bucket.reading.check()


def test_uploads_and_deletions_reach_it_when_it_is_back(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragcache.store.remote.health.PAUSE_S", 0.1)
    monkeypatch.setattr(bucket, "_RETRY_S", 0.2)
    monkeypatch.setattr("ragcache.store.remote.journal.FIRST_S", 0.1)
    stays, goes = make_variant(), make_variant((1, 1, 1))
    store = machine("one", far.url)
    store.put(goes)
    settled(store)
    network.fault = lambda method, path: "reset"
    store.put(stays)
    store.delete(goes.key)
    wait_until(lambda: not (store._bucket.listing.fine and store._bucket.writing.fine), 60)
    assert set(store._journal.waiting()) <= {Kind.UPLOAD, Kind.DELETE}
    network.fault = lambda method, path: ""
    wait_until(lambda: not store._journal.waiting(), 120)
    assert digests_in(store) == {stays.key.digest}


def test_a_bucket_that_takes_nothing_is_read_all_the_same(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_RETRY_S", 0.2)
    variant = make_variant()
    one, other = machine("one", far.url), machine("other", far.url)
    one.put(variant)
    settled(one)
    network.fault = lambda method, path: "500" if method == "PUT" else ""
    other.put(make_variant((4, 4, 4)))
    wait_until(lambda: not other._bucket.writing.fine, 60)
    read_all(other, [variant])


def test_several_who_want_one_entry_bring_it_once(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any
) -> None:
    variant = make_variant()
    one, other = machine("one", far.url), machine("other", far.url)
    one.put(variant)
    settled(one)
    other.variants(variant.key.family)
    network.requests.clear()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: read_all(other, [variant]), range(4)))
    assert len(network.requests) <= 2, "all at once but for who came too late to wait, and too early for the disk"


def test_what_will_be_wanted_comes_ahead_and_is_given_up(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any
) -> None:
    variants = [make_variant((number,) * 3) for number in range(3)]
    one, other = machine("one", far.url), machine("other", far.url)
    for variant in variants:
        one.put(variant)
    settled(one)
    for variant in variants:
        other.variants(variant.key.family)
    other.near(lambda: [variants[0].key])
    wait_until(lambda: other._disk.holds(variants[0].key), 60)
    network.fault = lambda method, path: "stall"
    give_up = other.near(lambda: [variant.key for variant in variants])
    wait_until(lambda: len(other._arrivals._coming) == 2, 60)
    give_up()
    wait_until(lambda: not other._arrivals._coming, 60)
    assert not other._disk.holds(variants[1].key)


def test_health_pauses_longer_each_time_and_tells_once() -> None:
    now = [0.0]
    health = Health("read", "s3://here", lambda: now[0])
    pauses = []
    for _ in range(10):
        health.check()
        health.failed("gone")
        health.failed("gone")  # beside it
        began = now[0]
        while True:
            try:
                health.check()
            except RemoteError:
                now[0] += 0.5
            else:
                break
        pauses.append(now[0] - began)
    assert pauses[0] <= 1.25 * PAUSE_S + 0.5
    assert pauses[-1] >= 0.75 * LONGEST_PAUSE_S
    assert max(pauses) <= 1.25 * LONGEST_PAUSE_S + 0.5
    assert len(health.take_told()) == 1
    assert health.take_told() == []
    health.succeeded()
    health.failed("again")
    assert len(health.take_told()) == 1


def test_memory_of_families_is_bounded(
    machine: OpenMachine, far: S3Bucket, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MOST_FAMILIES", 3)
    store = machine("one", far.url)
    for number in range(6):
        store.variants(make_variant((number,)).key.family)
    wait_until(lambda: not store._catalog._looks, 60)
    assert len(store._catalog._families) == 3
    monkeypatch.setattr(catalog, "MOST_FAMILIES", 100)
    monkeypatch.setattr(catalog, "MOST_NBYTES", 3000)
    other = machine("other", far.url)
    for number in range(6):
        other.put(make_variant((number,)))
    settled(other)
    store._catalog._families.clear()
    for number in range(6):
        assert len(store.variants(make_variant((number,)).key.family)) == 1
    assert len(store._catalog._families) == 1
