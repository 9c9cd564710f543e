"""Budgets that change while a store runs, on each kind of store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragcache.errors import ConfigError, StoreError
from ragcache.store import DiskTier, KVStore, open_store
from ragcache.store.budgets import Leaving

Make = Callable[..., Any]


def filled(store: KVStore, make: Make, count: int = 6) -> list[Any]:
    """Used in another order than they were put."""
    made = [make((i, i, i)) for i in range(count)]
    for variant in made:
        store.put(variant)
    for variant in made[::2]:
        store.use(variant.key)
    return made


def size(store: KVStore) -> dict[str, int]:
    """Of an entry, by tier."""
    return {one.tier: one.nbytes // one.entries for one in store.stats()}


def there(store: KVStore, made: list[Any]) -> list[int]:
    return [place for place, variant in enumerate(made) if store.get(variant.key) is not None]


def shrunk(store: KVStore, entries: float) -> list[Leaving]:
    return [store.resize(tier, int(entries * nbytes)) for tier, nbytes in size(store).items()]


def test_what_does_not_fit_goes_at_once_in_order(stores: Any, make_variant: Make) -> None:
    store = stores.open()
    made, nbytes = filled(store, make_variant), size(store)
    gone = shrunk(store, 2.5)
    assert gone == [Leaving(4, 4 * one) for one in nbytes.values()]
    for stats in store.stats():
        assert (stats.entries, stats.evictions, stats.budget) == (2, 4, int(2.5 * nbytes[stats.tier]))
    store.check_integrity()
    assert there(store, made) == [2, 4], "these were used last"


def test_what_is_renewed_goes_later_and_was_not_used(stores: Any, make_variant: Make) -> None:
    """As the blocks of an exact prefix are, which were opened one after the other."""
    store = stores.open()
    made = filled(store, make_variant)
    before = [store.outlook(tier, 10).uses for tier in size(store)]
    for place in (1, 0):
        store.renew(made[place].key)
    store.renew(make_variant((9, 9, 9)).key)  # which is not there
    assert [store.outlook(tier, 10).uses for tier in size(store)] == before
    shrunk(store, 2.5)
    assert there(store, made) == [0, 1]


def test_it_holds_for_what_comes_and_may_grow_again(stores: Any, make_variant: Make) -> None:
    store = stores.open(budget=2)
    made, nbytes = filled(store, make_variant), size(store)
    assert shrunk(store, 4) == [Leaving()] * len(nbytes)
    made += [make_variant((20 + i, 5, 5)) for i in range(4)]
    for variant in made[6:]:
        store.put(variant)
    assert there(store, made) == [6, 7, 8, 9]
    assert [store.resize(tier, None) for tier in nbytes] == [Leaving()] * len(nbytes)
    for variant in made[:6]:
        store.put(variant)
    assert there(store, made) == list(range(10))
    assert all(stats.budget is None for stats in store.stats())


def test_what_is_pinned_stays_and_makes_room_when_it_is_let_go(stores: Any, make_variant: Make) -> None:
    store = stores.open()
    made, new = filled(store, make_variant), make_variant((9, 9, 9))
    for variant in made[:3]:
        store.pin(variant.key)
    *faster, last = [gone.entries for gone in shrunk(store, 1.5)]
    assert last == 3 and faster == [5] * len(faster), "memory holds what it has room for: the pins are kept below"
    assert there(store, made) == [0, 1, 2]
    store.check_integrity()
    with pytest.raises(StoreError, match="budget"):
        store.put(new)
    assert there(store, [*made, new]) == [0, 1, 2], "nothing had gone for it"
    for variant in made[:3]:
        store.pin(variant.key, False)
    assert {stats.entries for stats in store.stats()} == {1}
    store.check_integrity()
    assert there(store, made) == [2]


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0, 2.0, 3.7, 5.99, 6.0, 9.0])
def test_what_is_told_ahead_is_what_goes(stores: Any, make_variant: Make, share: float) -> None:
    store = stores.open()
    made = filled(store, make_variant)
    store.pin(made[4].key)
    for stats in list(store.stats()):
        budget = max(1, int(share * stats.nbytes / stats.entries))
        outlook = store.outlook(stats.tier, budget)
        assert (outlook.budget, outlook.nbytes, outlook.asked) == (None, stats.nbytes, budget)
        assert next(one for one in store.stats() if one.tier == stats.tier) == stats, "nothing has changed"
        assert outlook.leaving == store.resize(stats.tier, budget)
        assert store.outlook(stats.tier, budget).leaving == Leaving(), "all that could go has gone"
    store.check_integrity()


def test_what_it_may_come_to_is_told_by_what_was_used_again(stores: Any, make_variant: Make) -> None:
    """Of three entries used in turn, two thirds of the room serve none again."""
    store = stores.open(budget=2)
    made = [make_variant((i, i, i)) for i in range(3)]
    assert {store.outlook(stats.tier, 10).hit_rate for stats in store.stats()} == {None}
    for _ in range(4):
        for variant in made:
            if store.get(variant.key) is None:
                store.put(variant)
    for tier, nbytes in size(store).items():
        outlook = store.outlook(tier, 4 * nbytes)
        assert outlook.uses == 9, tier
        assert (outlook.hit_rate, outlook.hit_rate_asked) == (0.0, 1.0)


def test_no_budget_would_have_kept_what_is_deleted(stores: Any, make_variant: Make) -> None:
    store, variant = stores.open(), make_variant()
    for _ in range(3):
        store.put(variant)
        store.delete(variant.key)
    assert {store.outlook(stats.tier, None).uses for stats in store.stats()} == {0}


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_of_nothing_is_refused(stores: Any, make_variant: Make, budget: int) -> None:
    store = stores.open()
    made = filled(store, make_variant, 1)
    for stats in list(store.stats()):
        with pytest.raises(ConfigError, match=f"a budget of {budget} bytes for {stats.tier}: give more"):
            store.resize(stats.tier, budget)
        with pytest.raises(ConfigError, match="give more"):
            store.outlook(stats.tier, budget)
    assert there(store, made) == [0]


def test_a_tier_that_is_not_there_is_refused(stores: Any, tmp_path: Path) -> None:
    store = stores.open()
    known = ", ".join(stats.tier for stats in store.stats())
    with pytest.raises(ConfigError, match=f"no tier 'tape' can have a budget, but {known}: "):
        store.resize("tape", 1)
    with pytest.raises(ConfigError, match="no tier 'ram' can have a budget, but disk: the store was opened without it"):
        open_store(tmp_path / "alone", ram_bytes=0, codec="raw").resize("ram", 1)


def test_more_than_one_change_of_the_folder_goes(tmp_path: Path, make_variant: Make, monkeypatch: Any) -> None:
    """Others have their turns in between."""
    monkeypatch.setattr("ragcache.store.disk_budget._AT_ONCE", 2)
    store = DiskTier(tmp_path, None, "raw")
    made, change, steps = filled(store, make_variant, 7), store._index.change, list[int]()
    nbytes = size(store)["disk"]

    def counted(work: Any, reserve: bool = True) -> Any:
        steps.append(DiskTier(tmp_path, None, "raw").stats()[0].entries)
        return change(work, reserve)

    monkeypatch.setattr(store._index, "change", counted)
    assert store.resize("disk", 2 * nbytes) == Leaving(5, 5 * nbytes)
    assert steps == [7, 5, 3]
    assert there(store, made) == [4, 6]


def test_a_smaller_budget_at_the_next_start_leaves_pins_too(tmp_path: Path, make_variant: Make) -> None:
    store = DiskTier(tmp_path, None, "raw")
    made, nbytes = filled(store, make_variant), size(store)["disk"]
    for variant in made[:2]:
        store.pin(variant.key)
    again = DiskTier(tmp_path, nbytes, "raw")
    again.check_integrity()
    assert there(again, made) == [0, 1]


def test_one_that_does_not_evict_keeps_all(tmp_path: Path, make_variant: Make) -> None:
    store = open_store(tmp_path, ram_bytes=0, codec="raw", evicts=False)
    made = filled(store, make_variant)
    assert store.outlook("disk", 1).leaving == store.resize("disk", 1) == Leaving()
    assert there(store, made) == list(range(6))
    with pytest.raises(StoreError, match="budget of 1 bytes"):
        store.put(make_variant((9, 9, 9)))


def test_what_is_being_read_is_read_to_its_end(stores: Any, make_variant: Make) -> None:
    store = stores.open()
    variant = filled(store, make_variant, 1)[0]
    with store.open(variant.key) as entry:
        shrunk(store, 0.5)
        assert there(store, [variant]) == []
        assert entry.variant().k.shape == variant.k.shape


def test_threads_that_put_read_and_resize(stores: Any, make_variant: Make) -> None:
    store = stores.open(budget=4)
    made = [make_variant((i, i, i)) for i in range(8)]
    store.put(made[0])
    nbytes, barrier = size(store), threading.Barrier(4)

    def serve(seed: int) -> None:
        random = np.random.default_rng(seed)
        barrier.wait()
        for _ in range(60):
            variant = made[random.integers(len(made))]
            if (found := store.get(variant.key)) is not None:
                assert found.variant.key == variant.key
            else:
                try:
                    store.put(variant)
                except StoreError as error:  # it has become too large meanwhile
                    assert "budget" in str(error)

    def resize(seed: int) -> None:
        random = np.random.default_rng(seed)
        barrier.wait()
        for _ in range(30):
            tier = list(nbytes)[random.integers(len(nbytes))]
            store.resize(tier, int(nbytes[tier] * random.integers(1, 9) / 2))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda task: task[0](task[1]), [(serve, 0), (serve, 1), (resize, 2), (resize, 3)]))
    store.check_integrity()
    for place in store.tiers():
        place.reuse.check_integrity()
    for tier, one in nbytes.items():
        store.resize(tier, 2 * one)
    assert all(stats.nbytes <= stats.budget for stats in store.stats())
    assert store.verify() == []
