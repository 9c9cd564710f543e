"""How many variants of one chunk every kind of store keeps, and which."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import StoreError
from ragcache.store.disk import DiskTier
from ragcache.store.eviction import VARIANTS, open_order
from ragcache.types import Variant


def behind(make_variant: Any, place: int) -> Variant:
    variant: Variant = make_variant(context=() if place < 0 else (f"document-{place}",))
    return variant


def kept(store: Any, make_variant: Any, places: range) -> list[int]:
    """Which of these the store has, told alike by each of its ways."""
    family = behind(make_variant, 0).key.family
    listed = {info.key for info in store.variants(family)}
    assert listed == {behind(make_variant, place).key for place in places if behind(make_variant, place).key in listed}
    found = [place for place in places if behind(make_variant, place).key in listed]
    assert all(store.get(behind(make_variant, place).key) is not None for place in found)
    return found


def test_a_chunk_of_a_thousand_documents_keeps_a_few_variants(stores: Any, make_variant: Any) -> None:
    store = stores.open()
    for place in range(3 * VARIANTS):
        store.put(behind(make_variant, place))
    assert kept(store, make_variant, range(3 * VARIANTS)) == list(range(2 * VARIANTS, 3 * VARIANTS))
    for stats in store.stats():
        assert (stats.entries, stats.displaced, stats.evictions) == (VARIANTS, 2 * VARIANTS, 0)


def test_that_which_was_used_longest_ago_goes(stores: Any, make_variant: Any) -> None:
    store = stores.open()
    for place in range(VARIANTS):
        store.put(behind(make_variant, place))
    for place in (0, 2):
        store.get(behind(make_variant, place).key)
    for place in (VARIANTS, VARIANTS + 1):
        store.put(behind(make_variant, place))
    assert kept(store, make_variant, range(VARIANTS + 2)) == [0, 2, *range(4, VARIANTS + 2)]


def test_pinned_variants_and_the_one_without_context_stay(stores: Any, make_variant: Any) -> None:
    store, pinned = stores.open(), range(VARIANTS + 2)
    store.put(behind(make_variant, -1))
    for place in pinned:
        store.pin(behind(make_variant, place).key)
        store.put(behind(make_variant, place))
    for place in (50, 51, 52):
        store.put(behind(make_variant, place))
    assert kept(store, make_variant, range(-1, 60)) == [-1, *pinned, 52]


def test_replacing_a_variant_displaces_none(stores: Any, make_variant: Any) -> None:
    store = stores.open()
    for place in (*range(VARIANTS), *range(VARIANTS)):
        store.put(behind(make_variant, place))
    assert kept(store, make_variant, range(VARIANTS)) == list(range(VARIANTS))
    assert {stats.displaced for stats in store.stats()} == {0}


def test_other_chunks_are_left_alone(stores: Any, make_variant: Any) -> None:
    store, other = stores.open(), make_variant((9,))
    store.put(other)
    for place in range(2 * VARIANTS):
        store.put(behind(make_variant, place))
    assert store.get(other.key) is not None


def test_a_displaced_variant_makes_room_by_itself(stores: Any, make_variant: Any) -> None:
    """A full store need evict no other chunk's for it."""
    other = make_variant((4, 4, 4))
    store = stores.open(budget=VARIANTS + 1)
    store.put(other)
    for place in range(VARIANTS):
        store.put(make_variant(context=(f"d{place}", "c1")))
    store.put(make_variant(context=("dx", "c1")))
    assert store.get(other.key) is not None
    assert {stats.evictions for stats in store.stats()} == {0}


def test_what_cannot_be_kept_displaces_nothing(stores: Any, make_variant: Any) -> None:
    store = stores.open(budget=VARIANTS)
    for place in range(VARIANTS):
        store.put(make_variant(context=(f"d{place}", "c1")))
    with pytest.raises(StoreError, match="budget"):
        store.put(make_variant(context=("dx", "c1"), layers=300))
    assert len(store.variants(make_variant().key.family)) == VARIANTS
    assert {stats.displaced for stats in store.stats()} == {0}


@pytest.mark.parametrize("order", ["lru", "lfu", "craft", "value"])
def test_writers_of_one_chunk_do_not_push_out_what_the_others_are_bringing(
    tmp_path: Path, make_variant: Any, order: str
) -> None:
    """What has just been announced has the fewest uses of all."""
    store = DiskTier(tmp_path, None, "raw", open_order(order))
    for place in range(VARIANTS):
        store.put(behind(make_variant, place), wanted=True)
        for _ in range(5):
            store.use(behind(make_variant, place).key)

    def write(first: int) -> None:
        for place in range(first, first + 10):
            store.put(behind(make_variant, place), wanted=True)

    with ThreadPoolExecutor(24) as threads:
        list(threads.map(write, range(VARIANTS, VARIANTS + 240, 10)))
    store.check_integrity()
    assert store.stats()[0].entries == VARIANTS
