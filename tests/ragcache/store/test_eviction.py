from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragcache.store.eviction import Evictable, in_order, least_recently_used, victims

candidates = st.lists(
    st.builds(Evictable, st.uuids().map(str), st.integers(1, 50), st.integers(0, 20), st.booleans()), max_size=12
)


@given(entries=candidates, need=st.integers(1, 200))
def test_the_first_are_chosen_and_no_more_than_needed(entries: list[Evictable], need: int) -> None:
    chosen = victims(entries, need)
    if chosen is None:
        assert sum(entry.nbytes for entry in entries) < need
        return
    assert chosen == entries[: len(chosen)]
    assert sum(entry.nbytes for entry in chosen) >= need > sum(entry.nbytes for entry in chosen[:-1])


@given(entries=candidates)
def test_an_order_of_ones_own_looks_at_all(entries: list[Evictable]) -> None:
    assert in_order(entries, least_recently_used) is entries, "tiers know it"
    assert in_order(entries, lambda one: -one.nbytes) == sorted(entries, key=lambda one: -one.nbytes)
