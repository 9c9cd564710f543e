"""The lowest of many entries, gone through one by one, against all of them ranked each time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.store.eviction import Evictable, Uses, lowest
from ragcache.store.eviction.lfu import LFU
from ragcache.store.eviction.lowest import LowestFirst
from ragcache.store.eviction.victims import first_of

counts = st.lists(st.integers(0, 5), min_size=1, max_size=30)
SIZE = 10


class Held:
    """Entries of one size, by name."""

    def __init__(self, uses: Iterable[int]):
        made = (Evictable(str(place), SIZE, place, False, uses=Uses(count)) for place, count in enumerate(uses))
        self.entries = {one.name: one for one in made}
        self.looks = 0

    def all(self) -> list[Evictable]:
        self.looks += 1
        return sorted((one for one in self.entries.values() if not one.pinned), key=lambda one: one.used)

    def take(self, lowest: LowestFirst, number: int) -> list[str]:
        chosen = first_of(lowest.of(self.all, self.entries.get), number * SIZE)
        for one in chosen:
            del self.entries[one.name]
        return [one.name for one in chosen]

    def plainly(self, number: int) -> list[str]:
        ranked = sorted(self.entries.values(), key=lambda one: (one.uses.count, one.used))
        return [one.name for one in ranked[:number]]


@given(counts=counts, steps=st.lists(st.integers(1, 5), max_size=9), share=st.integers(1, 8))
def test_they_come_as_all_of_them_would(counts: list[int], steps: list[int], share: int) -> None:
    held, found = Held(counts), LowestFirst(LFU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowest, "SHARE", share)
        for number in steps:
            wanted = held.plainly(number)
            assert held.take(found, number) == wanted


def test_all_are_looked_at_once_for_many() -> None:
    held, found = Held(range(6400)), LowestFirst(LFU)
    assert [held.take(found, 1) for _ in range(900)] == [[str(place)] for place in range(900)]
    assert held.looks == 3


def test_what_was_used_pinned_or_deleted_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    held, found = Held(range(9)), LowestFirst(LFU)
    monkeypatch.setattr(lowest, "SHARE", 1)
    assert held.take(found, 1) == ["0"]
    held.entries["1"] = replace(held.entries["1"], used=99, uses=Uses(50))
    held.entries["2"] = replace(held.entries["2"], pinned=True)
    del held.entries["3"]
    assert held.take(found, 2) == ["4", "5"]
    del held.entries["2"]  # a pinned one is not among those that may go
    assert held.take(found, 9) == ["6", "7", "8", "1"]


def test_what_stays_after_all_comes_again() -> None:
    held, found = Held(range(9)), LowestFirst(LFU)
    first_of(found.of(held.all, held.entries.get), 2 * SIZE)
    assert held.take(found, 3) == ["0", "1", "2"]
