from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragcache.store.eviction import Evictable, least_recently_used, victims

candidates = st.lists(
    st.builds(Evictable, st.uuids().map(str), st.integers(1, 50), st.integers(0, 20), st.booleans()), max_size=12
)


@given(entries=candidates, need=st.integers(1, 200))
def test_the_oldest_unpinned_are_chosen_and_no_more_than_needed(entries: list[Evictable], need: int) -> None:
    free = sorted((entry for entry in entries if not entry.pinned), key=lambda entry: entry.used)
    chosen = victims(entries, least_recently_used, need)
    if chosen is None:
        assert sum(entry.nbytes for entry in free) < need
        return
    assert chosen == free[: len(chosen)]
    assert sum(entry.nbytes for entry in chosen) >= need > sum(entry.nbytes for entry in chosen[:-1])


@given(entries=candidates, need=st.integers(1, 200), spare=st.integers(0, 200))
def test_more_is_chosen_only_within_the_spare(entries: list[Evictable], need: int, spare: int) -> None:
    least, chosen = victims(entries, least_recently_used, need), victims(entries, least_recently_used, need, spare)
    assert (least is None) == (chosen is None)
    if least is not None and chosen is not None and chosen != least:
        assert chosen[: len(least)] == least
        assert sum(entry.nbytes for entry in chosen) <= spare
