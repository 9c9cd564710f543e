"""How often entries were asked for, against all uses gone through one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.store.eviction import Uses
from ragcache.store.eviction.base import AGAIN, BURST, LATER, SOON
from ragcache.store.fading import OTHERS, FadingUses

NAMES = st.sampled_from("abc")


@given(st.lists(NAMES, max_size=40))
def test_each_use_counts_half_after_so_many_others(names: list[str]) -> None:
    record = FadingUses()
    for name in names:
        record.use(name)
    for name in "abc":
        ages = [len(names) - place for place, one in enumerate(names, start=1) if one == name]
        found = record.of(name)
        assert found.count == found.worth == len(ages)
        assert found.soon == pytest.approx(sum(0.5 ** (age / SOON) for age in ages))
        gaps = [earlier - age for earlier, age in pairwise(ages)]
        weights = [1.0, *(1 - (1 - AGAIN) * 0.5 ** (gap / BURST) for gap in gaps)]
        later = sum(weight * 0.5 ** (age / LATER) for weight, age in zip(weights, ages, strict=False))
        assert found.later == pytest.approx(later)


def test_who_asks_again_at_once_is_one_conversation() -> None:
    """What five asked for, one after the other, is worth more than what was asked for five times at once."""
    record = FadingUses()
    for number in range(5 * BURST):
        record.use("spread" if number % BURST == 0 else "burst" if number < 6 else "other")
    assert record.of("spread").count == record.of("burst").count == 5
    assert 1.3 * record.of("burst").later < record.of("spread").later < 2 * record.of("burst").later


def test_what_is_put_was_asked_for_once() -> None:
    record = FadingUses()
    record.use("a", missed=True)
    record.come("a", held=False)
    record.come("b", held=False)
    record.come("b", held=True)
    assert (record.of("a").count, record.of("b").count) == (1, 1)
    record.come("a", held=False)
    assert record.of("a").count == 2, "it had gone, and is wanted again"


def test_credit_is_for_what_was_used() -> None:
    record = FadingUses()
    record.use("a")
    record.credit("a", 20)
    record.credit("b", 20)
    assert (record.of("a").worth, record.of("b")) == (20, Uses())


def test_what_others_tell_of_is_added_to_what_is_known() -> None:
    """Faded by the time since, at the pace of uses here; never more than some of them."""
    now = [0.0]
    record = FadingUses(clock=lambda: now[0])
    record.use("a")
    assert record.of_folder("a", 0, 0.0) == record.of("a"), "the one that put it"
    assert record.of_folder("a", 3, 0.0) == Uses(4, 2, 4, 4)
    assert record.of_folder("b", 0, 0.0) == Uses(1, 1, 1, 1), "it was put, by somebody else"
    assert record.of_folder("b", 1000, 0.0).count == OTHERS
    now[0] = 9.0  # two uses in ten seconds
    record.use("c")
    passed = 100 * 3 / 10
    assert record.of_folder("b", 0, 100.0).soon == pytest.approx(0.5 ** (passed / SOON))
    assert record.of_folder("b", 0, 100.0).later == pytest.approx(0.5 ** (passed / LATER))


def test_no_more_names_are_remembered_than_it_may() -> None:
    record = FadingUses(most=2)
    for name in ("a", "b", "a", "c"):
        record.use(name)
    assert [record.of(name).count for name in "abc"] == [2, 0, 1]
    record.forget("a")
    assert record.of("a") == Uses()
