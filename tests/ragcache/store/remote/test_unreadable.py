"""Objects that cannot be read, in a bucket that can."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from obstore.exceptions import GenericError

from ragcache.errors import RemoteError, UnreadableObject
from ragcache.store.entry import EntryReader
from ragcache.store.findings import Flaw
from ragcache.store.remote import bucket, catalog, faults
from ragcache.store.remote import store as store_module
from ragcache.store.remote.health import ALL_UNREADABLE, PAUSE_S, Health
from ragcache.store.remote.journal import Kind, RemoteTask
from ragcache.store.remote.names import object_name
from ragcache.store.remote.sweep import FEW, Sweep
from ragcache.types import Variant
from tests.buckets import S3Bucket
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, object_of, settled


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LOOK_S", 20.0)


@pytest.fixture
def archived(s3: int, machine: OpenMachine, far: S3Bucket, make_variant: Any) -> Variant:
    """One of two entries that others have put, which a rule of the bucket has put away: it is listed, and not read."""
    variant: Variant = make_variant()
    parts = urlsplit(far.url)
    url = f"http://127.0.0.1:{s3}/{parts.netloc}{parts.path}/{object_name(variant.key, variant.lineage)}"
    headers = {"x-amz-storage-class": "GLACIER", "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, bytes(5000), headers, method="PUT")
    urllib.request.urlopen(request, timeout=30).close()
    other = machine("one", far.url)
    other.put(make_variant((1, 1, 1)))
    settled(other)
    return variant


def test_the_others_are_read_all_the_same(
    machine: OpenMachine, far: S3Bucket, archived: Variant, make_variant: Any
) -> None:
    store, flaws = machine("other", far.url), list[Flaw]()
    for _ in range(2):
        assert store.variants(archived.key.family, flaws) == []
        assert store.get(archived.key) is None
        store._catalog.forget(archived.key.family)
    assert store._bucket.reading.fine
    assert store.get(make_variant((1, 1, 1)).key) is not None
    assert [archived.key.digest in flaw.reason for flaw in flaws] == [True], "told once"


def test_a_deletion_goes_by_its_name(machine: OpenMachine, far: S3Bucket, archived: Variant) -> None:
    store = machine("other", far.url)
    store.drop_seeing({archived.key.context[0]})
    settled(store)
    assert digests_in(store) == set()


@pytest.mark.parametrize(
    ("told", "is_of_object"),
    [
        ("Generic LocalFileSystem error: Unable to open file /kv/x: Permission denied (os error 13)", True),
        ("Generic S3 error: Error performing GET http://host/x in 1 ms - Server returned status code: 416 Range", True),
        ("Generic S3 error: HTTP error: error sending request: Operation not permitted (os error 1)", False),
        ("Generic S3 error: Server returned non-2xx status code: 500 Internal Server Error", False),
        ("Generic LocalFileSystem error: Unable to open file /kv/x: Too many open files (os error 24)", False),
    ],
)
def test_faults_of_the_way_there_are_no_object_s(told: str, is_of_object: bool) -> None:
    """A firewall's among them. What obstore has no class for is told by its text alone."""
    assert faults.is_of_object(GenericError(told)) is is_of_object


def test_one_that_has_become_shorter_is_put_off_alone(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter, sound = make_variant(tuple(range(60))), make_variant((1, 1, 1))
    one, other = machine("one", folder_url), machine("other", folder_url)
    for variant in (shorter, sound):
        one.put(variant)
    settled(one)
    assert len(other.variants(shorter.key.family)) == 1
    path = object_of(Path(folder_url.removeprefix("file://")), shorter.key)
    path.write_bytes(path.read_bytes()[:500])
    monkeypatch.setattr(bucket, "PART", 1000)
    with pytest.raises(RemoteError, match="range"):
        other.get(shorter.key)
    assert other.get(sound.key) is not None
    assert other.get(shorter.key) is None


@pytest.mark.parametrize(
    ("withheld", "stays", "left"),
    [(FEW, (), 0), (FEW + 1, (), FEW + 1), (FEW, ("key-*",), FEW), (FEW + 1, ("key-*",), FEW + 1)],
)
def test_a_deletion_goes_by_names_where_few_may_not_be_read(
    machine: OpenMachine,
    folder_url: str,
    make_variant: Any,
    monkeypatch: pytest.MonkeyPatch,
    withheld: int,
    stays: tuple[str, ...],
    left: int,
) -> None:
    """A name suspects many: where others' objects may not be read, all of them would go. It tells no border, so what
    may be within one where traces stay is left.
    """
    one, other = machine("one", folder_url), machine("other", folder_url)
    variants = [make_variant(tuple(range(place, place + 3))) for place in range(withheld)]
    for variant in variants:
        one.put(variant)
    settled(one)
    monkeypatch.setattr(other._bucket, "read", refused)
    tasks = [RemoteTask(Kind.TRACES, (variant.key.context[0], *stays)) for variant in variants]
    sweep = other._bucket.submit(Sweep(tasks).run(other._bucket))
    if left and not stays:
        with pytest.raises(RemoteError, match=f"{withheld} objects .* may not be read here"):
            sweep.result(60)
    else:
        sweep.result(60)
    assert len(digests_in(one)) == left


@pytest.mark.parametrize("stays", [(), ("key-*",)])
def test_what_nobody_can_read_goes_by_its_name_where_all_of_it_would(
    machine: OpenMachine, folder_url: str, make_variant: Any, stays: tuple[str, ...]
) -> None:
    """It may be what a key has brought."""
    store, variant = machine("one", folder_url), make_variant()
    store.put(variant)
    settled(store)
    object_of(Path(folder_url.removeprefix("file://")), variant.key).write_bytes(b"damaged" * 100)
    store.drop_seeing({variant.key.context[0]}, stays)
    settled(store)
    assert digests_in(store) == ({variant.key.digest} if stays else set())
    store.drop_chunk(variant.key.fingerprint, "", variant.key.chunk, elsewhere=True)
    settled(store)
    assert digests_in(store) == set()


async def refused(path: str, start: int, end: int, *, aside: bool = False) -> memoryview | None:
    raise UnreadableObject(f"{path} is others'")


def test_a_bucket_of_which_no_object_may_be_read_is_left_alone() -> None:
    health = Health("read", "s3://bucket/kv")
    assert all(health.refused(str(number), "forbidden") for number in range(ALL_UNREADABLE - 1))
    health.succeeded()
    alone = [health.refused(str(number), "forbidden") for number in range(ALL_UNREADABLE)]
    assert alone == [*[True] * (ALL_UNREADABLE - 1), False]


def test_one_object_that_is_refused_again_and_again_is_one() -> None:
    health = Health("read", "s3://bucket/kv")
    assert all(health.refused("one", "forbidden") for _ in range(2 * ALL_UNREADABLE))


def test_one_that_is_refused_after_a_pause_begins_no_other() -> None:
    """It is tried again and again: nothing else would ever be asked for."""
    now = 0.0
    health = Health("read", "s3://bucket/kv", lambda: now)
    assert [health.refused(str(number), "forbidden") for number in range(ALL_UNREADABLE)][-1] is False
    health.failed("forbidden")
    now += 2 * PAUSE_S
    assert health.refused("0", "forbidden")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("not enough memory: you tried to allocate 2 GiB")])
def test_what_memory_was_short_for_is_sound(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(catalog, "LATE_S", 0.0)  # it is put off, for a minute
    variant, one, other = make_variant(), machine("one", folder_url), machine("other", folder_url)
    one.put(variant)
    settled(one)
    with monkeypatch.context() as short:
        short.setattr(EntryReader, "variant", fails(error))
        with pytest.raises(type(error)):
            other.get(variant.key)
    flaws = list[Flaw]()
    assert len(other.variants(variant.key.family, flaws)) == 1 and flaws == []
    assert other.get(variant.key) is not None


def fails(error: Exception) -> Callable[[EntryReader], Variant]:
    def variant(reader: EntryReader) -> Variant:
        raise error

    return variant
