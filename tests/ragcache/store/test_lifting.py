"""Entries that are likely to be asked for come into memory, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragcache.store import DiskTier, RamTier
from ragcache.store.lifting import lift, lift_one
from ragcache.store.tiered import TieredStore
from ragcache.types import Variant, VariantInfo

ROOM = 20_000


@pytest.fixture
def ram() -> RamTier:
    return RamTier(ROOM)


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    return DiskTier(tmp_path / "store", None, "raw")


def infos(store: TieredStore, *variants: Variant) -> list[VariantInfo]:
    return [info for one in variants for info in store.variants(one.key.family) if info.key == one.key]


def quietly() -> None:
    """Nobody waits for an answer."""


def test_they_come_without_being_used(ram: RamTier, disk: DiskTier, make_variant: Any) -> None:
    store, variants = TieredStore(ram, disk), [make_variant((i, i, i)) for i in range(4)]
    for one in variants[:3]:
        disk.put(one)
    store.get(variants[0].key)
    before, used, paused = disk.stats()[0], disk.reuse.uses, list[None]()
    assert lift(store, infos(store, *variants), lambda: paused.append(None)) == 2
    assert [ram.holds(one.key) for one in variants] == [True, True, True, False]
    assert (disk.stats()[0].hits, disk.stats()[0].misses, disk.reuse.uses) == (before.hits, before.misses, used)
    assert ram.stats()[0].hits == 0 and len(paused) == 2, "what is there already waits for nobody"
    fetched = store.get(variants[1].key)
    assert fetched is not None and fetched.tier == "ram"
    store.check_integrity()


def test_they_push_nothing_out(disk: DiskTier, make_variant: Any) -> None:
    variants = [make_variant((i, i, i)) for i in range(4)]
    for one in variants:
        disk.put(one)
    probe = RamTier(None)
    probe.put(variants[0])
    ram = RamTier(2 * probe.stats()[0].nbytes + 10)
    store = TieredStore(ram, disk)
    store.get(variants[0].key)
    assert lift(store, infos(store, *variants[1:]), quietly) == 1
    assert ram.holds(variants[0].key) and ram.stats()[0].evictions == ram.stats()[0].declined == 0


def test_what_is_bad_or_gone_is_left_out(ram: RamTier, disk: DiskTier, make_variant: Any) -> None:
    store, variants = TieredStore(ram, disk), [make_variant((i, i, i)) for i in range(3)]
    for one in variants:
        disk.put(one)
    likely = infos(store, *variants)
    disk.delete(variants[0].key)
    (path,) = disk.root.glob(f"*/*/*/{variants[1].key.digest}.kv")
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    assert lift(store, likely, quietly) == 1
    assert [ram.holds(one.key) for one in variants] == [False, False, True]
    assert not path.exists(), "it is quarantined"


def test_what_is_deleted_meanwhile_is_not_lifted(disk: DiskTier, make_variant: Any) -> None:
    class Deleting(RamTier):
        """Another thread deletes the entry just before it comes into memory."""

        def offer(self, variant: Any) -> bool:
            disk.delete(variant.key)
            return super().offer(variant)

    disk.put(make_variant())
    ram = Deleting(None)
    store = TieredStore(ram, disk)
    assert lift(store, infos(store, make_variant()), quietly) == 0
    assert not ram.holds(make_variant().key)


def test_without_both_tiers_nothing_comes(ram: RamTier, disk: DiskTier, make_variant: Any) -> None:
    disk.put(make_variant())
    likely = disk.variants(make_variant().key.family)
    assert lift(disk, likely, quietly) == lift(ram, likely, quietly) == 0


def test_one_that_was_read_in_part_comes_where_it_would_if_read_whole(disk: DiskTier, make_variant: Any) -> None:
    """Among those of an order that judges: what is worth more stays, and nothing is read in vain."""
    variants = [make_variant((i, i, i)) for i in range(3)]
    for one in variants:
        disk.put(one)
    probe = RamTier(None)
    probe.put(variants[0])
    nbytes = probe.stats()[0].nbytes
    ram = RamTier(nbytes + 10)
    store = TieredStore(ram, disk)
    used = disk.reuse.uses
    assert lift_one(store, variants[0].key, quietly) and ram.holds(variants[0].key)
    assert not lift_one(store, variants[0].key, quietly), "it is there"
    assert (disk.reuse.uses, disk.stats()[0].hits) == (used, 0)
    for _ in range(8):
        store.get(variants[0].key)
    assert not ram.would_take(variants[1].key, nbytes) and not lift_one(store, variants[1].key, quietly)
    assert ram.holds(variants[0].key) and ram.stats()[0].evictions == ram.stats()[0].declined == 0, "nothing was read"
    assert not RamTier(nbytes - 1).would_take(variants[1].key, nbytes)
    assert RamTier(None).would_take(variants[1].key, nbytes)
    disk.delete(variants[2].key)
    assert not lift_one(store, variants[2].key, quietly)
    assert not lift_one(disk, variants[1].key, quietly), "no memory"
    store.check_integrity()
