"""How often entries are used again, and how large a tier would have to be to have them then.

These are Mattson's stack distances: between two uses of an entry, the bytes of all others that were used. A tier in
which what was used longest ago goes first has the entry at its second use where these and its own bytes are within the
budget. So the uses of one run tell of every budget, also of those that it never had.

It is exact for that order alone. Of others, of pinned entries and of deletions amid the uses it tells about what
happens; of budgets that the largest entry does not fit, too little.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from zlib import crc32

from ragcache.host import BriefLock
from ragcache.store.fading import FadingUses

MOST = 16_384  # entries that are remembered
_FEWEST = 1024  # slots
_FINE = 5  # bits: so many steps, as a power of two, are between a number of bytes and its double


@dataclass(slots=True)
class _Known:
    slot: int
    nbytes: int
    missed: bool = False


class ReuseRecord:
    """Of one tier, since it was opened, by names of entries. Threads share it.

    Those that were evicted are remembered too. Where all would be more than `most`, every second name, by its hash, is
    left out, and each that stays stands for two; so on. Each name has a slot, in the order of uses, and a Fenwick tree
    sums their bytes. A use costs a logarithm of their number, some ten microseconds; once all slots are taken, after as
    many uses as there are names, they are dealt out again, which takes some milliseconds. First uses do not count: no
    budget changes them.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = BriefLock()
        self._known: dict[str, _Known] = {}  # the one that was used longest ago first
        self._tree = [0] * (_FEWEST + 1)
        self._slots = self._nbytes = 0  # that were given out; bytes in all of them
        self._weight = 1  # names that each one stands for
        self._needs = Counter[int]()  # uses by the step that a budget has to reach
        self._uses = 0
        self.fading = FadingUses()  # by which orders of eviction go

    def use(self, name: str, nbytes: int | None = None) -> None:
        """Whether it is there or not; its bytes, where whoever tells it knows them."""
        self.fading.use(name)
        with self._lock:
            self._count(name)
            self._renew(name, nbytes)

    def miss(self, name: str) -> None:
        """A use of what is not there, but may be put for it."""
        self.fading.use(name, missed=True)
        with self._lock:
            self._count(name)
            self._renew(name, None, missed=True)

    def put(self, name: str, nbytes: int, *, held: bool) -> None:
        """It has come. Where it had gone (not `held`) it was wanted again, which is a use, unless its miss was told."""
        with self._lock:
            known = self._known.get(name)
            if known is not None and not held and not known.missed:
                self._count(name)
            self._renew(name, nbytes)

    def forget(self, name: str) -> None:
        """No budget would have kept it."""
        self.fading.forget(name)
        with self._lock:
            self._take(name)

    def hit_rate(self, budget: int | None) -> float | None:
        """The share of uses at which the entry would be there, to three parts in a hundred of the budget, and rather
        too low; None where nothing was used again yet.
        """
        with self._lock:
            needs = self._needs.copy()
        if not needs:
            return None
        served = sum(uses for step, uses in needs.items() if budget is None or _most_of(step) <= budget)
        return served / needs.total()

    @property
    def uses(self) -> int:
        """That this is counted on."""
        return self._uses

    def check_integrity(self) -> None:
        with self._lock:
            assert len(self._known) <= self._most
            slots = [known.slot for known in self._known.values()]
            assert slots == sorted(set(slots)) and all(slot <= self._slots < len(self._tree) for slot in slots)
            assert self._nbytes == sum(known.nbytes for known in self._known.values()) == self._up_to(self._slots)

    def _count(self, name: str) -> None:
        known = self._known.get(name)
        if known is not None:
            since = self._nbytes - self._up_to(known.slot)
            self._needs[_step(since * self._weight + known.nbytes)] += self._weight
            self._uses += 1

    def _renew(self, name: str, nbytes: int | None, *, missed: bool = False) -> None:
        """As the one that was used last."""
        known = self._take(name)
        size = nbytes if nbytes is not None else known.nbytes if known else None
        if size is None or not self._stays(name):
            return
        if self._slots + 1 == len(self._tree):
            self._deal()
        self._slots += 1
        self._known[name] = _Known(self._slots, size, missed)
        self._add(self._slots, size)
        while len(self._known) > self._most:
            self._weight *= 2
            self._known = {one: known for one, known in self._known.items() if self._stays(one)}
            self._deal()

    def _stays(self, name: str) -> bool:
        return crc32(name.encode()) % self._weight == 0

    def _take(self, name: str) -> _Known | None:
        known = self._known.pop(name, None)
        if known is not None:
            self._add(known.slot, -known.nbytes)
        return known

    def _deal(self) -> None:
        """New slots, in the same order."""
        self._tree = tree = [0] * (max(_FEWEST, 2 * len(self._known)) + 1)
        self._slots, self._nbytes = len(self._known), sum(known.nbytes for known in self._known.values())
        for slot, known in enumerate(self._known.values(), start=1):
            known.slot = slot
            tree[slot] = known.nbytes
        for slot in range(1, len(tree)):
            if (above := slot + (slot & -slot)) < len(tree):
                tree[above] += tree[slot]

    def _add(self, slot: int, nbytes: int) -> None:
        self._nbytes += nbytes
        tree, size = self._tree, len(self._tree)
        while slot < size:
            tree[slot] += nbytes
            slot += slot & -slot

    def _up_to(self, slot: int) -> int:
        """Bytes of these slots."""
        tree, nbytes = self._tree, 0
        while slot:
            nbytes += tree[slot]
            slot &= slot - 1
        return nbytes


def _step(need: int) -> int:
    """Small numbers are steps of their own, larger ones share one with their neighbours."""
    shift = max(0, need.bit_length() - _FINE - 1)
    return (shift << _FINE) + (need >> shift)


def _most_of(step: int) -> int:
    """The largest number of a step."""
    shift = max(0, (step >> _FINE) - 1)
    return ((step - (shift << _FINE) + 1) << shift) - 1
