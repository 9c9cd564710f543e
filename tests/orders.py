"""What tests know of each order of eviction of the registry. A new one needs a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ragcache.store.eviction import Evictable

First = Callable[[Sequence[Evictable]], Evictable]  # which of these goes first: looked for plainly, among all


def used_longest_ago(held: Sequence[Evictable]) -> Evictable:
    return min(held, key=lambda one: one.used)


def came_first(held: Sequence[Evictable]) -> Evictable:
    return min(held, key=lambda one: (one.came, one.used))


def used_least(held: Sequence[Evictable]) -> Evictable:
    return min(held, key=lambda one: (one.uses.count, one.used))


def worth_least(held: Sequence[Evictable]) -> Evictable:
    return min(held, key=lambda one: (one.uses.worth, one.used))


def saves_least(held: Sequence[Evictable]) -> Evictable:
    def saved(one: Evictable) -> float:
        again = 0.02 * one.uses.soon / 30 + one.uses.later / 20_000
        return again / one.nbytes**0.5

    return min(held, key=lambda one: (saved(one), one.used))


ORDER_ROWS: Mapping[str, First] = {
    "lru": used_longest_ago,
    "fifo": came_first,
    "lfu": used_least,
    "craft": worth_least,
    "value": saves_least,
}
