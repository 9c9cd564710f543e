"""What tests know of each order of eviction of the registry. A new one needs a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ragcache.store.eviction import Evictable

First = Callable[[Sequence[Evictable]], Evictable]  # which of these goes first: looked for plainly, among all


def used_longest_ago(held: Sequence[Evictable]) -> Evictable:
    return min(held, key=lambda one: one.used)


ORDER_ROWS: Mapping[str, First] = {
    "lru": used_longest_ago,
}
