"""What programs of a folder count, and what that comes to together with what others tell."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ragcache.errors import StoreError
from ragcache.store.eviction import ORDERS
from ragcache.store.remote.shared_uses import ToldUses, _decoded, encoded
from ragcache.store.remote.use_record import HALF_S, KEPT_S, TOLD_S, Used, UseRecord
from tests.orders import ORDER_ROWS
from tests.ragcache.store.remote.conftest import NOW, place

URL = "s3://shelf"


def digest_of(number: int) -> str:
    return f"{number:016x}" + "0" * 48


def told(*uses: Used) -> ToldUses:
    return ToldUses.of([_decoded(encoded(uses))], NOW)


def test_uses_are_told_from_time_to_time(tmp_path: Path, make_variant: Any) -> None:
    now, key = [NOW], make_variant().key
    record, other = UseRecord(tmp_path, URL, lambda: now[0]), UseRecord(tmp_path, URL, lambda: now[0])
    assert not record.count(key) and record.due() is None
    now[0] += TOLD_S + 1
    assert record.count(key) and not record.count(key), "it is said once that it is time"
    assert record.due() is not None and record.due() is None
    record.told()
    now[0] += 1
    assert other.count(key) and other.due() is None, "one program has told for the folder"
    now[0] += TOLD_S + 1
    record.count(key)
    assert other.count(key)
    found = other.due()
    assert found is not None and [one.count for one in found] == [5], "but for what record has not written down yet"
    other.told()
    now[0] += TOLD_S + 1
    assert record.count(key) and record.due() is not None


def test_what_could_not_be_told_is_told_the_next_time(tmp_path: Path, make_variant: Any) -> None:
    now, key = [NOW], make_variant().key
    record = UseRecord(tmp_path, URL, lambda: now[0])
    now[0] += TOLD_S + 1
    assert record.count(key) and record.due() is not None
    assert record.due(at_once=True) is not None
    record.told()
    assert record.due(at_once=True) is None, "there is nothing new"


def test_short_programs_tell_together(tmp_path: Path, make_variant: Any) -> None:
    """Each of them ends before it is time."""
    now, times = [NOW], 0
    for _ in range(30):
        record = UseRecord(tmp_path, URL, lambda: now[0])
        now[0] += TOLD_S / 4
        if record.count(make_variant().key) and record.due() is not None:
            times += 1
            record.told()
        record.keep()
    assert 5 <= times <= 8
    (used,) = UseRecord(tmp_path, URL, lambda: now[0]).used()
    assert used.count == 30


def test_a_clock_that_was_ahead_silences_nobody(tmp_path: Path, make_variant: Any) -> None:
    now, keys = [NOW + 400 * 86_400], [make_variant((number,) * 3).key for number in range(2)]
    record = UseRecord(tmp_path, URL, lambda: now[0])
    now[0] += 1
    record.count(keys[0])
    assert record.due(at_once=True) is not None
    record.told()
    now[0] = NOW
    for one in (record, UseRecord(tmp_path, URL, lambda: now[0])):
        now[0] += TOLD_S + 1
        assert one.count(keys[1])
        found = one.due()
        assert found is not None and {used.name for used in found} == {key.digest[:16] for key in keys}
        assert all(used.last <= now[0] for used in found)


def test_a_child_of_a_fork_has_counted_nothing(tmp_path: Path, make_variant: Any) -> None:
    record = UseRecord(tmp_path, URL, lambda: NOW)
    record.count(make_variant().key)
    with record._lock:  # as another thread may hold it
        child = os.fork()
        if not child:
            signal.alarm(60)  # which ends it
            try:
                record.keep()
                os._exit(0)
            finally:
                os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert record.used() == []
    record.keep()
    assert [one.count for one in record.used()] == [1]


def test_what_is_forgotten_is_news(tmp_path: Path, make_variant: Any) -> None:
    """Also where nothing is left to tell, and where it could not be written down at first."""
    now, keys = [NOW], [make_variant((number,) * 3).key for number in range(2)]
    record = UseRecord(tmp_path, URL, lambda: now[0])
    now[0] += 1
    for key in keys:
        record.count(key)
    assert record.due(at_once=True) is not None
    record.told()
    now[0] += TOLD_S + 1
    record.forget([keys[0].digest])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoreError):
        patch.setattr(record, "_path", tmp_path / "nowhere" / "at" / "all.sqlite" / "x")
        (tmp_path / "nowhere").write_bytes(b"")
        record.keep()
    found = record.due()
    assert found is not None and [used.name for used in found] == [keys[1].digest[:16]]
    record.told()
    record.forget([keys[1].digest])
    assert record.due(at_once=True) == []
    record.told()
    assert record.due(at_once=True) is None


def test_what_is_forgotten_while_it_is_told_is_told_again(tmp_path: Path, make_variant: Any) -> None:
    """By another program of the folder."""
    now, keys = [NOW], [make_variant((number,) * 3).key for number in range(2)]
    record, other = UseRecord(tmp_path, URL, lambda: now[0]), UseRecord(tmp_path, URL, lambda: now[0])
    now[0] += 1
    for key in keys:
        record.count(key)
    for number, key in enumerate(keys):
        assert record.due(at_once=True) is not None
        other.forget([key.digest])
        other.keep()
        record.told()
        found = record.due(at_once=True)
        assert found is not None and [used.name for used in found] == [one.digest[:16] for one in keys[number + 1 :]]


def test_uses_fade_and_are_forgotten(tmp_path: Path, make_variant: Any) -> None:
    now, keys = [NOW], [make_variant((number,) * 3).key for number in range(2)]
    record = UseRecord(tmp_path, URL, lambda: now[0])
    record.count(keys[0])
    record.keep()
    now[0] += HALF_S
    for key in keys:
        record.count(key)
    found = record.due(at_once=True)
    assert found is not None
    assert {one.name: (one.count, one.later) for one in found} == {
        keys[0].digest[:16]: (2, 1.5),
        keys[1].digest[:16]: (1, 1),
    }
    now[0] += KEPT_S + 1
    record.count(keys[1])
    found = record.due(at_once=True)
    assert found is not None and [one.name for one in found] == [keys[1].digest[:16]]


def test_a_folder_remembers_so_many_and_no_more(
    tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragcache.store.remote.use_record.MOST_TOLD", 3)
    monkeypatch.setattr("ragcache.store.remote.use_record.MOST_COUNTED", 4)
    now, keys = [NOW], [make_variant((number,) * 3).key for number in range(9)]
    record = UseRecord(tmp_path, URL, lambda: now[0])
    for start in (0, 4):
        now[0] += 1
        for key in keys[start : start + 5]:
            record.count(key)
        record.keep()
    found = record.due(at_once=True)
    assert found is not None and {one.name for one in found} < {key.digest[:16] for key in keys[4:8]}
    assert len(found) == 3


@given(
    some.lists(
        some.lists(
            some.tuples(some.integers(0, 6), some.integers(1, 50), some.floats(0, 50), some.integers(0, 10**6)),
            max_size=6,
        ),
        max_size=4,
    )
)
def test_all_machines_together_are_their_sums(machines: list[list[tuple[int, int, float, int]]]) -> None:
    sent = [
        encoded([Used(digest_of(number)[:16], count, later, 2 * count, NOW - age) for number, count, later, age in one])
        for one in machines
    ]
    found = ToldUses.of([_decoded(one) for one in sent], NOW)
    for number in range(8):
        mine = [row for one in machines for row in one if row[0] == number]
        uses = found.evictable(place(digest_of(number), age_s=1e9)).uses
        assert uses.count == max(1, sum(count for _, count, _, _ in mine))
        assert uses.worth == max(1, 2 * sum(count for _, count, _, _ in mine))
        later = sum(later * 0.5 ** (age / HALF_S) for _, _, later, age in mine)
        assert uses.later == pytest.approx(later, rel=1e-4, abs=1e-6)


def test_what_nobody_tells_of_counts_as_one_use_when_it_was_written() -> None:
    seen = told().evictable(place(digest_of(1), age_s=HALF_S))
    assert (seen.uses.count, seen.uses.later, seen.uses.worth) == (1, 0.5, 1)
    assert seen.used == seen.came == int(1000 * (NOW - HALF_S))


@pytest.mark.parametrize("order", ORDERS)
def test_each_order_serves_a_bucket(order: str) -> None:
    uses = [Used(digest_of(n)[:16], 3 + n % 4, 1 + (5 * n) % 7, 3 + (3 * n) % 5, NOW - 1000 * n) for n in range(9)]
    seen = [told(*uses).evictable(place(digest_of(n), 100 + 37 * (n % 3), 5000.0 * n)) for n in range(12)]
    lowest = min(seen, key=lambda one: (ORDERS[order].rank(one), one.used))
    assert lowest == ORDER_ROWS[order](seen)
