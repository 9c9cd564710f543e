"""What lies in a bucket may be anybody's: it is looked at before it is used, told of once, and its size is bounded."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.errors import ConfigError, CorruptEntry, RemoteError, StoreError
from ragcache.store.codec import open_codec
from ragcache.store.entry import pack
from ragcache.store.eviction import VARIANTS
from ragcache.store.findings import Flaw
from ragcache.store.frame import PREFIX
from ragcache.store.remote import arrivals, catalog, heads
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.faults import reason_of
from ragcache.store.remote.names import object_name
from ragcache.types import KVForm, Variant
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled
from tests.ragcache.store.test_format import with_header

Forge = Callable[[bytes], bytes]


@pytest.fixture
def folder(folder_url: str) -> Path:
    return Path(folder_url.removeprefix("file://"))


@pytest.fixture
def variant(make_variant: Any) -> Variant:
    made: Variant = make_variant(tuple(range(30)))
    return made


def file_of(variant: Variant) -> bytes:
    return b"".join(pack(variant, open_codec("raw"))[1])


@pytest.mark.parametrize(
    "url",
    ["https://user:S3CRET@127.0.0.1:9/pre", "https://127.0.0.1:9/pre?token=S3CRET", "s3://S3CRET@b/p?x=S3CRET"],
)  # fmt: skip
def test_what_fails_tells_no_secret_of_its_url(url: str, caplog: pytest.LogCaptureFixture) -> None:
    told = "Error performing PROPFIND https://user:S3CRET@127.0.0.1:9/pre/?token=S3CRET&a=b in 1 s - HTTP error"
    assert reason_of(RuntimeError(told)) == "Error performing PROPFIND https://127.0.0.1:9/pre/ in 1 s - HTTP error"
    try:
        bucket = Bucket(url)
    except ConfigError as error:
        assert "S3CRET" not in str(error)
        return
    with closing(bucket), pytest.raises(RemoteError) as failed:
        bucket.submit(bucket.probe()).result(60)
    assert "S3CRET" not in f"{failed.value} {bucket.take_told()} {caplog.text}"


def placed(folder: Path, variant: Variant, data: bytes) -> Path:
    """As this variant's object."""
    path = folder / object_name(variant.key, variant.lineage)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def flipped(place: int) -> Forge:
    def forge(data: bytes) -> bytes:
        at = place % len(data)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return forge


BAD_HEADS: dict[str, Forge] = {
    "empty": lambda data: b"",
    "a byte": lambda data: b"R",
    "no cache file": lambda data: os.urandom(4096),
    "header cut": lambda data: data[:100],
    "end cut": lambda data: data[:-64],
    "longer": lambda data: data + bytes(64),
    "header flipped": flipped(40),
    "header of 4 GB": lambda data: PREFIX.pack(b"RCKV", 2, 2**32 - 1) + data[PREFIX.size :],
    "newer": lambda data: data[:4] + b"\x09" + data[5:],
    "profile flipped": flipped(600),
}


@pytest.mark.parametrize("name", BAD_HEADS)
def test_a_bad_head_is_told_once_and_never_used(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant, name: str
) -> None:
    whole = file_of(variant)
    placed(folder, variant, BAD_HEADS[name](whole))
    store, flaws = machine("one", folder_url), list[Flaw]()
    found = store.variants(variant.key.family, flaws)
    assert found == []
    assert len(flaws) == 1
    assert variant.key.digest in flaws[0].where
    assert store.get(variant.key) is None
    flaws.clear()
    assert store.variants(variant.key.family, flaws) == []
    assert flaws == []


def test_a_bad_body_is_refused_and_replaced_when_it_is_computed(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant
) -> None:
    path = placed(folder, variant, flipped(-10)(file_of(variant)))
    store, flaws = machine("one", folder_url, ram=None), list[Flaw]()
    assert len(store.variants(variant.key.family)) == 1, "its head is sound"
    with pytest.raises(CorruptEntry, match="checksum"):
        store.get(variant.key)
    assert store.variants(variant.key.family, flaws) == []
    assert len(flaws) == 1
    assert store.get(variant.key) is None
    assert [stats.entries for stats in store.stats()] == [0, 0]
    store.put(variant)
    settled(store)
    assert path.read_bytes() == file_of(variant)
    other = machine("other", folder_url)
    fetched = other.get(variant.key)
    assert fetched is not None
    assert torch.equal(fetched.variant.k, variant.k)


def test_another_variant_under_its_name_is_refused(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant, make_variant: Any
) -> None:
    """Of another border, another engine, other ids: what a name claims counts for nothing."""
    for stranger in (make_variant(border="theirs"), make_variant(fingerprint="engine-b"), make_variant((7,))):
        placed(folder, variant, file_of(stranger))
        store, flaws = machine("one", folder_url), list[Flaw]()
        assert store.variants(variant.key.family, flaws) == []
        assert "another variant" in flaws[0].reason
        assert store.get(variant.key) is None


def test_kv_of_another_form_is_refused(machine: OpenMachine, folder_url: str, folder: Path, variant: Variant) -> None:
    placed(folder, variant, file_of(variant))
    store, flaws = machine("one", folder_url), list[Flaw]()
    store.expect(KVForm(layers=3, kv_heads=2, head_dim=4), "engine-a")
    assert store.variants(variant.key.family, flaws) == []
    assert "another form" in flaws[0].reason


def test_an_object_that_changes_after_it_was_listed_is_refused(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant, make_variant: Any
) -> None:
    path = placed(folder, variant, file_of(variant))
    store = machine("one", folder_url)
    assert len(store.variants(variant.key.family)) == 1
    path.write_bytes(file_of(variant)[:-640])
    with pytest.raises(StoreError):
        store.get(variant.key)
    path.unlink()
    assert machine("other", folder_url).get(variant.key) is None


def test_its_size_is_bounded_before_it_comes(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MOST_OBJECT", 1000)
    monkeypatch.setattr(heads, "FIRST", -1)  # to read any of it would fail
    placed(folder, variant, file_of(variant))
    store, flaws = machine("one", folder_url), list[Flaw]()
    assert store.variants(variant.key.family, flaws) == []
    assert "no cache file has more" in flaws[0].reason


def test_of_a_full_folder_the_newest_are_looked_at(
    machine: OpenMachine, folder_url: str, folder: Path, make_variant: Any
) -> None:
    for number in range(catalog.LOOKED_AT + 20):
        one = make_variant(context=(f"c{number}",))
        os.utime(placed(folder, one, file_of(one)), (number, number))
    found = machine("one", folder_url).variants(one.key.family)
    assert {info.key.context for info in found} == {(f"c{number}",) for number in range(20, catalog.LOOKED_AT + 20)}


def test_strangers_in_the_bucket_are_left_alone(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant
) -> None:
    placed(folder, variant, file_of(variant))
    strangers = [folder / "readme.txt", folder / variant.key.family[:2] / "x.kv"]
    for path in strangers:
        path.write_text("not ours")
    store = machine("one", folder_url)
    assert len(store.variants(variant.key.family)) == 1
    store.drop_seeing({variant.key.chunk, "c0"})
    settled(store)
    assert digests_in(store) == set()
    assert all(path.exists() for path in strangers)


def test_what_cannot_be_read_goes_with_the_texts_of_its_name(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant
) -> None:
    path = placed(folder, variant, b"x" * 5000)
    store = machine("one", folder_url)
    store.drop_seeing({"c0"})
    settled(store)
    assert not path.exists()


NEWER = [{"version": 3}, {"codec": "int3"}]


@pytest.mark.parametrize("newer", NEWER)
def test_what_a_newer_version_put_there_is_not_deleted_on_suspicion(
    machine: OpenMachine, folder_url: str, folder: Path, make_variant: Any, newer: dict[str, Any]
) -> None:
    """Its name, which has bits for few texts, tells of any."""
    variant = make_variant(tuple(range(30)), plain=True)
    name = object_name(variant.key, variant.lineage)
    bits = name.split(".")[1]
    path = folder / name.replace(bits, "_" * len(bits))
    path.parent.mkdir(parents=True)
    path.write_bytes(with_header(file_of(variant), **newer))
    store = machine("one", folder_url)
    store.drop_seeing({"another"})
    store.drop_chunk("engine-a", "system", "another", elsewhere=True)
    settled(store)
    assert path.exists()


@pytest.mark.parametrize("newer", NEWER)
def test_what_a_newer_version_put_there_is_not_replaced(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant, make_variant: Any, newer: dict[str, Any]
) -> None:
    """Nor does it make room for others of its chunk, though it is the oldest."""
    path = placed(folder, variant, data := with_header(file_of(variant), **newer))
    os.utime(path, (1, 1))
    store, flaws = machine("one", folder_url), list[Flaw]()
    assert store.variants(variant.key.family, flaws) == []
    assert "made by a newer version" in flaws[0].reason
    for number in range(-1, VARIANTS + 1):
        store.put(make_variant(variant.ids, context=(f"c{number}",)) if number >= 0 else variant)
        settled(store)
    assert path.read_bytes() == data
    assert len(digests_in(store)) == VARIANTS


def test_a_head_that_is_long_is_read_on(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "FIRST", 16)
    placed(folder, variant, file_of(variant))
    store = machine("one", folder_url)
    assert len(store.variants(variant.key.family)) == 1
    monkeypatch.setattr(heads, "MOST", 100)
    assert machine("other", folder_url).variants(variant.key.family) == []


def test_what_comes_ahead_is_bounded(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(folder, variant, file_of(variant))
    store = machine("one", folder_url)
    (entry,) = store._remote(variant.key.family)
    monkeypatch.setattr(arrivals, "MOST_AHEAD", 100)
    assert store._arrivals.begin(entry.place, ahead=True) is None
    assert store.get(variant.key) is not None, "what a prompt waits for always comes"


def test_an_uploaded_file_is_looked_at_first(
    machine: OpenMachine, folder_url: str, folder: Path, variant: Variant
) -> None:
    store = machine("one", folder_url)
    store._courier.close()
    store.put(variant)
    (path,) = store._disk.root.rglob("*.kv")
    path.write_bytes(flipped(-10)(path.read_bytes()))
    again = machine("one", folder_url)
    settled(again)
    assert digests_in(again) == set()
    assert again.verify() != []
