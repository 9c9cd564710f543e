"""What a record of uses foretells of every budget is what a cache of that budget does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.store import RamTier
from ragcache.store.eviction.lru import LRU
from ragcache.store.reuse import ReuseRecord

FINE = 1 / 32  # by which a budget may be taken for a smaller one
small = st.lists(st.integers(1, 9), min_size=1, max_size=6)  # sizes of entries: all that they need is told exactly
large = st.lists(st.integers(1_000, 90_000), min_size=1, max_size=6)


def used(sizes: list[int], trace: Iterable[int], record: ReuseRecord | None = None) -> ReuseRecord:
    record = record or ReuseRecord()
    for index in trace:
        record.use(f"entry {index}", sizes[index])
    record.check_integrity()
    return record


def served(sizes: list[int], trace: Iterable[int], budget: int) -> float | None:
    """The share of second and later uses that such a cache serves, which holds what was used last: it is run."""
    held, seen, hits, uses = OrderedDict[int, int](), set[int](), 0, 0
    for index in trace:
        if index in seen:
            uses += 1
            hits += index in held
        seen.add(index)
        held.pop(index, None)
        held[index] = sizes[index]
        while sum(held.values()) > budget:
            held.popitem(last=False)
    return hits / uses if uses else None


def traces(sizes: st.SearchStrategy[list[int]]) -> st.SearchStrategy[tuple[list[int], list[int]]]:
    return sizes.flatmap(lambda one: st.tuples(st.just(one), st.lists(st.integers(0, len(one) - 1), max_size=60)))


@given(case=traces(small), more=st.integers(0, 60))
def test_every_budget_serves_what_it_foretells(case: tuple[list[int], list[int]], more: int) -> None:
    sizes, trace = case
    budget = max(sizes) + more
    assert used(sizes, trace).hit_rate(budget) == served(sizes, trace, budget)


@given(case=traces(large), more=st.integers(0, 600_000))
def test_large_budgets_are_told_about_and_never_too_high(case: tuple[list[int], list[int]], more: int) -> None:
    sizes, trace = case
    budget = max(sizes) + more
    rate = used(sizes, trace).hit_rate(budget)
    if rate is None:
        assert served(sizes, trace, budget) is None
    else:
        assert served(sizes, trace, int(budget * (1 - FINE))) <= rate <= served(sizes, trace, budget)  # type: ignore[operator]


@given(case=traces(small), budgets=st.lists(st.integers(1, 99), min_size=2, max_size=2))
def test_more_budget_serves_no_less(case: tuple[list[int], list[int]], budgets: list[int]) -> None:
    record = used(*case)
    less, more = (record.hit_rate(budget) for budget in sorted(budgets))
    assert less is None or (more is not None and less <= more <= record.hit_rate(None) == 1.0)


def test_before_anything_was_used_again_nothing_is_foretold() -> None:
    record = used([1, 2], [0, 1])
    assert (record.hit_rate(10), record.hit_rate(None), record.uses) == (None, None, 0)
    record.use("entry 0", 1)
    assert (record.hit_rate(3), record.hit_rate(2), record.uses) == (1.0, 0.0, 1)


def test_what_is_put_again_was_wanted_unless_its_miss_was_told() -> None:
    record = ReuseRecord()
    record.put("a", 4, held=False)
    assert record.uses == 0, "nobody wanted it before"
    record.put("a", 4, held=True)
    assert record.uses == 0, "it was there all the time"
    record.put("a", 4, held=False)
    assert (record.uses, record.hit_rate(4)) == (1, 1.0), "it had gone, and was made again"
    record.miss("a")
    record.put("a", 4, held=False)
    assert record.uses == 2, "one miss, one use"
    record.miss("b")
    record.use("c")
    assert (record.uses, record.hit_rate(4)) == (2, 1.0), "nothing is known of those"
    record.forget("a")
    record.put("a", 4, held=False)
    assert record.uses == 2, "it was deleted: no budget had kept it"
    record.check_integrity()


def test_sizes_are_those_of_the_last_use() -> None:
    record = ReuseRecord()
    record.put("a", 4, held=False)
    record.put("a", 9, held=True)
    record.use("a")
    assert (record.hit_rate(8), record.hit_rate(9)) == (0.0, 1.0)


def test_of_more_entries_than_it_remembers_some_stand_for_all() -> None:
    """Their rates are about those of all, and it stays as small as it was told to be."""
    random, entries, most = np.random.default_rng(0), 4000, 500
    sizes = random.integers(1_000, 9_000, entries).tolist()
    trace = (entries * random.random(60_000) ** 3).astype(int).tolist()
    whole, some = used(sizes, trace), used(sizes, trace, ReuseRecord(most))
    assert len(some._known) <= most < len(whole._known)
    for share in (0.05, 0.2, 0.5, 0.9):
        budget = int(share * sum(sizes))
        expected, found = whole.hit_rate(budget), some.hit_rate(budget)
        assert expected is not None and found is not None
        assert abs(found - expected) < 0.1, (share, found, expected)


def test_slots_are_dealt_out_again_and_again() -> None:
    sizes, trace = [3, 5, 7], [index for turn in range(2_000) for index in ((0, 1, 2), (0, 2, 1))[turn % 2]]
    record = used(sizes, trace)
    assert len(record._tree) < 2_000 < record.uses
    assert [record.hit_rate(budget) for budget in (8, 10, 14, 15)] == [
        served(sizes, trace, budget) for budget in (8, 10, 14, 15)
    ]
    for index in range(3):
        record.forget(f"entry {index}")
    used(sizes, [0] * 5_000, record)


@pytest.mark.parametrize("entries", [2, 5, 9])
def test_a_ram_tier_serves_what_its_record_foretells(make_variant: Callable[..., Any], entries: int) -> None:
    """Also of budgets that it never had: each is run too."""
    variants = [make_variant((i, i, i)) for i in range(10)]
    trace = (len(variants) * np.random.default_rng(1).random(400) ** 2).astype(int).tolist()

    def run(budget: int | None) -> tuple[RamTier, float]:
        tier, first, hits = RamTier(budget, LRU), set[int](), 0
        for index in trace:
            found = tier.open(variants[index].key)
            if found is None:
                tier.put(variants[index])
            hits += found is not None
            first.add(index)
        tier.check_integrity()
        tier.reuse.check_integrity()
        return tier, hits / (len(trace) - len(first))

    probe = RamTier(None)
    probe.put(variants[0])
    budget = entries * probe.stats()[0].nbytes
    asked, rate = run(budget)
    wider = budget + budget // 30  # so that the step of the budget is all within it
    for tier in (asked, run(None)[0], run(3 * budget)[0]):
        assert tier.reuse.hit_rate(wider) == rate
