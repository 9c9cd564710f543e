"""What goes first, by each order of the registry, and that stores go by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.errors import ConfigError
from ragcache.store import KVStore, disk, open_store
from ragcache.store.codec import CODECS, Codec, open_codec
from ragcache.store.entry import body_nbytes, pack
from ragcache.store.eviction import ORDERS, VARIANTS, Evictable, EvictionOrder, Uses, open_order, open_orders
from ragcache.store.eviction.victims import Lesser, displaced, in_order, victims
from ragcache.store.fading import FadingUses
from ragcache.types import Variant
from tests.orders import ORDER_ROWS, First

amounts = st.sampled_from([0.0, 0.5, 1.0, 2.0, 40.0])
entries = st.builds(
    Evictable,
    st.uuids().map(str),
    st.integers(1, 9),
    st.integers(0, 999),
    st.booleans(),
    st.integers(0, 9),
    st.builds(Uses, amounts, amounts, amounts, amounts),
)
by_use = st.lists(entries, unique_by=lambda one: one.used, max_size=12).map(
    lambda found: sorted(found, key=lambda one: one.used)
)
SIZES = (9, 3, 40, 1, 25, 40)  # tokens of what is put into a store, one after another
LARGEST = "largest for a test"


def leaving(held: list[Evictable], first: First) -> list[Evictable]:
    """All of these in the order of a row, the slow way."""
    rest, gone = list(held), []
    while rest:
        gone.append(first(rest))
        rest.remove(gone[-1])
    return gone


@pytest.fixture
def largest_first(monkeypatch: pytest.MonkeyPatch) -> str:
    """An order beside those of the registry."""
    monkeypatch.setitem(ORDERS, LARGEST, EvictionOrder(lambda one: -one.nbytes))
    monkeypatch.setitem(ORDER_ROWS, LARGEST, lambda held: max(held, key=lambda one: (one.nbytes, -one.used)))
    return LARGEST


def test_every_order_has_a_row() -> None:
    assert set(ORDER_ROWS) == set(ORDERS)


@pytest.mark.parametrize("name", ORDERS)
@given(held=by_use)
def test_they_leave_as_its_row_says(name: str, held: list[Evictable]) -> None:
    assert list(in_order(held, ORDERS[name])) == leaving(held, ORDER_ROWS[name])


@pytest.mark.parametrize("name", ORDERS)
@given(held=by_use)
def test_variants_of_a_chunk_are_displaced_as_its_row_says(name: str, held: list[Evictable]) -> None:
    """In whatever order they are found; but for pinned ones, and the one without context."""
    lead = held[0].name if held else ""
    loose = [one for one in held if not one.pinned and one.name != lead]
    expected = leaving(loose, ORDER_ROWS[name])[: max(0, len(held) + 1 - VARIANTS)]
    assert displaced(held[::-1], ORDERS[name], lead) == expected


@given(held=by_use)
def test_of_equal_ones_that_which_was_used_longest_ago_goes(held: list[Evictable]) -> None:
    loose = [one for one in held if not one.pinned]
    alike = EvictionOrder(lambda one: 0)
    assert displaced(held[::-1], alike, "") == loose[: max(0, len(held) + 1 - VARIANTS)]
    assert in_order(held, alike) == held


@given(held=by_use, need=st.integers(1, 60))
def test_the_first_are_chosen_and_no_more_than_needed(held: list[Evictable], need: int) -> None:
    chosen = victims(held, need)
    if chosen is None:
        assert sum(entry.nbytes for entry in held) < need
        return
    assert chosen == held[: len(chosen)]
    assert sum(entry.nbytes for entry in chosen) >= need > sum(entry.nbytes for entry in chosen[:-1])


@given(held=by_use)
def test_the_order_that_tiers_know_needs_no_look_at_all(held: list[Evictable]) -> None:
    assert in_order(held, ORDERS["lru"]) is held


def opened(tier: str, root: Path, budget: int | None, order: str) -> KVStore:
    of_ram, of_disk = (budget, 0) if tier == "ram" else (0, budget)
    return open_store(root, ram_bytes=of_ram, disk_bytes=of_disk, codec="raw", order=order)


@pytest.mark.parametrize("tier", ["ram", "disk"])
@pytest.mark.parametrize("name", [*ORDERS, LARGEST])
def test_a_store_goes_by_the_order_of_its_name(
    name: str, tier: str, tmp_path: Path, make_variant: Any, largest_first: str
) -> None:
    put = [make_variant(tuple(range(size)), context=(f"c{size}", str(i))) for i, size in enumerate(SIZES)]
    probe, held, before = opened(tier, tmp_path / "probe", None, name), [], 0
    uses = FadingUses()
    for used, variant in enumerate(put):
        probe.put(variant)
        uses.come(variant.key.digest, held=False)
        held.append(Evictable(variant.key.digest, probe.stats()[0].nbytes - before, used, False, used))
        before = probe.stats()[0].nbytes
    store = opened(tier, tmp_path / "store", before, name)
    for variant in put:
        store.put(variant)
    store.get(put[1].key)
    held[1] = replace(held[1], used=len(put))
    uses.use(held[1].name)
    new = make_variant((7,))
    store.put(new)
    uses.come(new.key.digest, held=False)
    held = [replace(one, uses=uses.of(one.name)) for one in held]
    gone = {variant.key.digest for variant in put if store.get(variant.key) is None}
    assert gone, "it was full"
    assert gone == {one.name for one in leaving(held, ORDER_ROWS[name])[: len(gone)]}
    store.check_integrity()


@pytest.mark.parametrize("tier", ["ram", "disk"])
def test_what_is_worth_less_than_what_would_go_is_not_taken_in(tier: str, tmp_path: Path, make_variant: Any) -> None:
    """It is counted, and comes in when it was asked for often enough, or has been pinned."""
    wanted, new, pinned = (make_variant(tuple(range(9)), context=(name,)) for name in ("a", "b", "c"))
    probe = opened(tier, tmp_path / "probe", None, "value")
    probe.put(wanted)
    store = opened(tier, tmp_path / "store", probe.stats()[0].nbytes + 5, "value")
    assert store.put(wanted)
    for _ in range(3):
        assert store.get(wanted.key) is not None
    assert not store.put(new) and not store.put_within(store.era(), new)
    assert store.get(new.key) is None and store.get(wanted.key) is not None
    assert (store.kept.declined, store.kept.evictions) == (2, 0)
    store.check_integrity()
    for _ in range(9):
        store.get(new.key)  # in vain: it is computed and put each time
        store.put(new)
    assert store.get(new.key) is not None and store.kept.evictions == 1
    for _ in range(9):
        store.get(new.key)
    store.pin(pinned.key)
    store.put(pinned)
    assert store.get(pinned.key) is not None
    assert store.put(pinned)
    assert store.get(pinned.key) is not None, "what is there already is put again"
    store.pin(pinned.key, pinned=False)
    assert store.put(new, wanted=True), "somebody asks for it to be kept"
    assert store.get(new.key) is not None
    store.check_integrity()


def test_what_the_disk_declines_serves_from_ram(tmp_path: Path, make_variant: Any) -> None:
    wanted, new = (make_variant(tuple(range(9)), context=(name,)) for name in ("a", "b"))
    probe = opened("disk", tmp_path / "probe", None, "value")
    probe.put(wanted)
    store = open_store(tmp_path / "store", disk_bytes=probe.stats()[0].nbytes + 5, codec="raw", order="value")
    store.put(wanted)
    for _ in range(3):
        store.get(wanted.key)
    store.pin(new.key, owner="somebody", seconds=0)
    assert not store.put(new)
    ram, disk = store.stats()
    assert (ram.entries, disk.entries, disk.declined) == (2, 1, 1)
    found = store.get(new.key)
    assert found is not None and found.tier == "ram"
    store.check_integrity()


def test_of_a_large_put_no_more_is_looked_at_than_is_worth_less(make_variant: Any) -> None:
    looked: list[str] = []

    def candidates() -> Iterator[Evictable]:
        for place in range(100):
            looked.append(str(place))
            yield Evictable(str(place), 1, place, False, uses=Uses(later=float(place)))

    new = Evictable("new", 50, 0, False, uses=Uses(later=5.5 * 50**0.5))
    lesser = Lesser(candidates(), new, ORDERS["value"])
    assert victims(lesser, 50) is None and lesser.ended
    assert len(looked) == 7
    assert victims(Lesser(candidates(), new, ORDERS["lru"]), 50) is not None
    assert victims(Lesser(candidates(), replace(new, pinned=True), ORDERS["value"]), 50) is not None


def test_what_another_process_has_just_put_is_not_the_first_to_go(tmp_path: Path, make_variant: Any) -> None:
    """Its uses are told by the folder alone."""
    ours, theirs, new = (make_variant(tuple(range(9)), context=(name,)) for name in "abc")
    probe = opened("disk", tmp_path / "probe", None, "value")
    probe.put(ours)
    nbytes = probe.stats()[0].nbytes
    here = opened("disk", tmp_path / "store", 2 * nbytes + 5, "value")
    here.put(ours)
    for place in range(200):
        here.get(make_variant((place, 1)).key)  # uses of others, in vain
    there = opened("disk", tmp_path / "store", 2 * nbytes + 5, "value")
    there.put(theirs)
    assert here.put(new)
    assert here.get(theirs.key) is not None and here.get(ours.key) is None


def test_tiers_may_have_orders_of_their_own() -> None:
    lru, value, fifo = (ORDERS[name] for name in ("lru", "value", "fifo"))
    assert open_orders("value") == (value, value, value)
    assert open_orders("ram=lru, disk=value") == (lru, value, value)
    assert open_orders("bucket=fifo,ram=lru,disk=value") == (lru, value, fifo)
    for wrong in (
        "ram=lru",
        "disk=lru,bucket=lru",
        "ram=lru,disk=value,bucket=none",
        "ram=lru,disk=value,gpu=lru",
        "ram=lru,ram=fifo,disk=value",
        "disk=value,ram",
        "=",
        "ram=,disk=lru",
    ):
        with pytest.raises(ConfigError, match="order of eviction"):
            open_orders(wrong)


def test_what_a_folder_tells_counts_after_a_restart(tmp_path: Path, make_variant: Any) -> None:
    """By the uses that the index has of each entry."""
    often, seldom = (make_variant(tuple(range(9)), context=(name,)) for name in ("a", "b"))
    store = opened("disk", tmp_path, None, "lfu")
    store.put(often)
    store.put(seldom)
    for _ in range(4):
        store.get(often.key)
    store.get(seldom.key)
    nbytes = store.stats()[0].nbytes
    store.close()
    store = opened("disk", tmp_path, nbytes + 5, "lfu")
    store.put(make_variant(tuple(range(9)), context=("c",)))
    assert store.get(seldom.key) is None and store.get(often.key) is not None


@pytest.mark.parametrize("tier", ["ram", "disk"])
def test_a_chunks_variants_go_by_it_too(tier: str, tmp_path: Path, make_variant: Any, largest_first: str) -> None:
    store = opened(tier, tmp_path, None, largest_first)
    long = make_variant(context=tuple(f"c{place}" for place in range(30)))  # its profile is larger
    others = [make_variant(context=(f"d{place}",)) for place in range(VARIANTS)]
    for variant in (*others[:3], long, *others[3:]):
        store.put(variant)
    assert {info.key for info in store.variants(long.key.family)} == {variant.key for variant in others}


def test_an_unknown_order_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=f"unknown order of eviction 'mru': choose from {', '.join(ORDERS)}$"):
        open_order("mru")
    with pytest.raises(ConfigError, match="unknown order of eviction 'mru'"):
        open_store(codec="raw", order="mru")


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_declined_is_neither_encoded_nor_written(
    codec: str, tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what its file would take, as far as that is known before."""
    wanted, new = (make_variant(tuple(range(300)), context=(name,)) for name in ("a", "b"))
    header, parts = pack(new, open_codec(codec))
    assert body_nbytes(new, open_codec(codec)) == sum(map(len, parts)) - len(parts[0])
    probe = open_store(tmp_path / "probe", ram_bytes=0, codec=codec, order="value")
    probe.put(wanted)
    room = probe.kept.nbytes + 5
    store = open_store(tmp_path / "store", ram_bytes=0, disk_bytes=room, codec=codec, order="value")
    store.put(wanted)
    for _ in range(3):
        store.get(wanted.key)
    encoded: list[Variant] = []

    def counted(variant: Variant, codec: Codec) -> Any:
        encoded.append(variant)
        return pack(variant, codec)

    monkeypatch.setattr(disk, "pack", counted)
    assert not store.put(new)
    assert (store.stats()[0].declined, encoded) == (1, [])
    for _ in range(9):
        store.get(new.key)
    assert store.put(new)
    assert encoded == [new]
    assert store.get(header.key) is not None
    store.check_integrity()
