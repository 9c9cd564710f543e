"""RAM over disk, and the factory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragcache.address import prefix_name
from ragcache.errors import ConfigError, StoreError
from ragcache.store import DiskTier, RamTier, open_store
from ragcache.store.eviction import VARIANTS
from ragcache.store.findings import RAM
from ragcache.store.held import footprint
from ragcache.store.pins import Pins
from ragcache.store.tiered import TieredStore


@pytest.fixture
def ram() -> RamTier:
    return RamTier(4000)


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    return DiskTier(tmp_path / "store", None, "raw")


@pytest.fixture
def store(ram: RamTier, disk: DiskTier) -> Iterator[TieredStore]:
    store = TieredStore(ram, disk)
    yield store
    store.check_integrity()


def test_a_get_from_disk_promotes(store: TieredStore, disk: DiskTier, make_variant: Any) -> None:
    disk.put(make_variant())
    first, second = store.get(make_variant().key), store.get(make_variant().key)
    assert first is not None
    assert second is not None
    assert (first.tier, second.tier) == ("disk", "ram")


def test_variants_name_the_fastest_tier(store: TieredStore, disk: DiskTier, make_variant: Any) -> None:
    quick, slow = make_variant(context=("a",)), make_variant(context=("b",))
    store.put(quick)
    disk.put(slow)
    assert {info.key: info.tier for info in store.variants(quick.key.family)} == {quick.key: "ram", slow.key: "disk"}


def test_what_is_too_large_for_ram_stays_on_disk(store: TieredStore, make_variant: Any) -> None:
    large = make_variant(tuple(range(300)))
    store.put(large)
    for _ in range(2):
        fetched = store.get(large.key)
        assert fetched is not None
        assert fetched.tier == "disk"


def test_a_use_in_ram_counts_on_disk(tmp_path: Path, make_variant: Any) -> None:
    a, b, c = (make_variant((i, i, i)) for i in range(3))
    probe = DiskTier(tmp_path / "probe", None, "raw")
    probe.put(a)
    disk = DiskTier(tmp_path / "store", 2 * probe.stats()[0].nbytes, "raw")
    store = TieredStore(RamTier(None), disk)
    store.put(a)
    store.put(b)
    store.get(a.key)
    store.put(c)
    assert disk.get(a.key) is not None
    assert disk.get(b.key) is None


def test_an_entry_deleted_on_disk_meanwhile_is_not_promoted(
    ram: RamTier, disk: DiskTier, make_variant: Any, tmp_path: Path
) -> None:
    class Deleting(RamTier):
        """Another thread deletes the entry just before it would be promoted."""

        def offer(self, variant: Any) -> bool:
            disk.delete(variant.key)
            return super().offer(variant)

    disk.put(make_variant())
    store = TieredStore(Deleting(None), disk)
    assert store.get(make_variant().key) is not None
    assert store.get(make_variant().key) is None


def test_a_conversation_that_is_read_while_all_go_does_not_stay_in_memory(disk: DiskTier, make_variant: Any) -> None:
    class Closing(RamTier):
        """A reader ends when memory has been looked through."""

        def trim(self, fingerprint: str, share: float, more: int = 0) -> None:
            super().trim(fingerprint, share, more)
            entry.close()

    variant = make_variant(fingerprint=prefix_name("engine"))
    disk.put(variant)
    ram = Closing(None)
    store = TieredStore(ram, disk)
    entry = store.open(variant.key)
    assert entry is not None
    entry.variant()
    store.drop_prefixes()
    assert store.get(variant.key) is None
    assert ram.stats()[0].entries == 0


def test_what_the_disk_refuses_serves_from_ram_alone(tmp_path: Path, ram: RamTier, make_variant: Any) -> None:
    store = TieredStore(ram, DiskTier(tmp_path / "store", 100, "raw"))
    with pytest.raises(StoreError, match="disk budget of 100 bytes"):
        store.put(make_variant())
    fetched = store.get(make_variant().key)
    assert fetched is not None
    assert fetched.tier == "ram"
    assert list(tmp_path.rglob("*.kv")) == []


def test_some_heads_take_their_share_of_ram_and_the_file_stays_whole(tmp_path: Path, make_variant: Any) -> None:
    variant = make_variant(ids=tuple(range(200)), heads=4)
    whole = open_store(tmp_path, codec="raw")
    whole.put(variant)
    some = open_store(tmp_path, codec="raw", heads=slice(1, 2))
    for tier in ("disk", "ram"):
        fetched = some.get(variant.key)
        assert fetched is not None
        assert (fetched.tier, fetched.variant.k.shape[1]) == (tier, 1)
        assert fetched.variant.k.equal(variant.k[:, 1:2])
        assert fetched.variant.v.equal(variant.v[:, 1:2])
    profile = 5 * 4 * len(variant)
    assert some.stats()[0].nbytes == variant.nbytes // 4 + profile
    with pytest.raises(AssertionError):
        some.put(fetched.variant)
    again = open_store(tmp_path, ram_bytes=0, codec="raw").get(variant.key)
    assert again is not None
    assert again.variant.k.equal(variant.k)
    assert whole.verify() == []


def test_the_factory_leaves_out_what_has_no_room(tmp_path: Path) -> None:
    assert isinstance(open_store(tmp_path / "a", codec="raw"), TieredStore)
    assert isinstance(open_store(tmp_path / "b", ram_bytes=0, codec="raw"), DiskTier)
    assert isinstance(open_store(ram_bytes=100, codec="raw"), RamTier)
    assert isinstance(open_store(tmp_path / "c", ram_bytes=100, disk_bytes=0, codec="raw"), RamTier)
    assert not (tmp_path / "c").exists()


def test_the_factory_refuses_what_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no tier"):
        open_store(ram_bytes=0, codec="raw")
    with pytest.raises(ConfigError, match="RAM budget is -1"):
        open_store(tmp_path, ram_bytes=-1, codec="raw")
    with pytest.raises(ConfigError, match="unknown codec 'zip'"):
        open_store(ram_bytes=100, codec="zip")


def test_what_other_processes_displaced_is_not_looked_at_again(
    store: TieredStore, ram: RamTier, disk: DiskTier, make_variant: Any
) -> None:
    """RAM and disk keep as many variants of a chunk each; together they are no more."""
    ours, theirs = ([make_variant((5,), context=(f"{who}-{n}",)) for n in range(VARIANTS)] for who in "ab")
    for variant in ours:
        store.put(variant)
    for variant in theirs:
        disk.put(variant)
    assert ram.stats()[0].entries == VARIANTS
    assert {info.key for info in store.variants(ours[0].key.family)} == {variant.key for variant in theirs}
    assert ram.stats()[0].entries == 0


def test_the_variant_without_context_stays_in_ram_whatever_others_have_put(
    store: TieredStore, ram: RamTier, disk: DiskTier, make_variant: Any
) -> None:
    """It is exact in every prompt that the chunk leads."""
    lead = make_variant((1,), context=())
    ram.offer(lead)
    for place in range(VARIANTS):
        disk.put(make_variant((1,), context=(f"c{place}",)))
    assert lead.key in {info.key for info in store.variants(lead.key.family)}
    assert ram.holds(lead.key)


def test_pins_leave_room_in_memory_for_what_is_asked_for(tmp_path: Path, make_variant: Any) -> None:
    """More of them than it has room for, each of them read once."""
    variants = [make_variant((number,) * 3) for number in range(12)]
    store = open_store(tmp_path, ram_bytes=4 * footprint(variants[0]), codec="raw")
    for variant in variants:
        store.put(variant)
    for variant in variants[:8]:
        store.pin(variant.key)
        assert store.get(variant.key) is not None
    hot = variants[-1].key
    assert [found.tier for _ in range(2) if (found := store.get(hot)) is not None][-1] == RAM
    assert all(store.get(variant.key) is not None for variant in variants[:8])
    store.check_integrity()


def test_a_pin_of_what_memory_alone_holds_keeps_it_there(tmp_path: Path, make_variant: Any) -> None:
    first, *others = [make_variant((number,) * 3) for number in range(4)]
    store = open_store(tmp_path, ram_bytes=2 * footprint(first), codec="raw")
    ram, disk = store._tiers  # type: ignore[attr-defined]
    ram.put(first)
    ram.pin(first.key, seconds=60)
    for variant in others:
        store.put(variant)
        assert store.get(variant.key) is not None
    assert ram.holds(first.key) and not disk.holds(first.key)


def test_a_pin_that_has_ended_is_forgotten() -> None:
    pins = Pins()
    pins.add("a", "ann", -1.0, below=False)
    pins.add("a", "bob", None, below=True)
    assert pins.holds("a") and not pins.keeps("a")
    pins.add("a", "bob", None, below=False)
    assert pins.keeps("a")
    pins.remove("a", "bob")
    assert not pins.holds("a") and not pins._until
