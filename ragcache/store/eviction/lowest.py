"""What goes first of many entries, by whatever order; their tier knows them by their last use.

Looking at all of them for each that comes would take longer the more there are. So all are ranked once, and some of the
lowest are gone through one by one as room is needed: those that nobody has used since are about where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ragcache.store.eviction.base import Evictable, EvictionOrder
from ragcache.store.eviction.victims import in_order

SHARE = 16  # of so many entries one is known to be among the lowest: what has come since is ranked soon enough


class LowestFirst:
    """Used by one thread at a time."""

    def __init__(self, order: EvictionOrder):
        self._order = order
        self._lowest: dict[str, Evictable] = {}

    def of(
        self, everything: Callable[[], Iterable[Evictable]], now: Callable[[str], Evictable | None]
    ) -> Iterator[Evictable]:
        """Those that may go, of `everything` (by its last use), the first to go first; `now`: one of them as it is by
        then.
        """
        if self._order.as_known:
            yield from everything()
            return
        given = set()
        for name, known in tuple(self._lowest.items()):
            one = now(name)
            if one is None or one.used != known.used or one.pinned:
                del self._lowest[name]
                continue
            given.add(name)
            yield one
        ranked = [*in_order(everything(), self._order)]
        self._lowest = {one.name: one for one in ranked[: 1 + len(ranked) // SHARE]}
        yield from (one for one in ranked if one.name not in given)
