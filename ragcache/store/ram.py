"""The RAM tier: decoded variants, ready to be placed."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count, islice

from ragcache.address import behind_another_system, is_of, is_prefix
from ragcache.errors import StoreError
from ragcache.host import BriefLock
from ragcache.store.base import ELSEWHERE, NO_ERA, OpenEntry, Tier
from ragcache.store.budgets import Leaving, share_of
from ragcache.store.defaults import ORDER
from ragcache.store.eviction import NEVER, ORDERS, VARIANTS, Evictable, EvictionOrder
from ragcache.store.eviction.lowest import LowestFirst
from ragcache.store.eviction.lru import LRU
from ragcache.store.eviction.victims import Lesser, displaced, first_of, victims
from ragcache.store.findings import RAM, Flaw, TierStats
from ragcache.store.held import HeldEntry, compact, footprint
from ragcache.store.pins import Pins, check_pin
from ragcache.store.residents import Resident, RoomFound
from ragcache.store.reuse import ReuseRecord
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey


class RamTier(Tier):
    """One lock guards all: nothing under it takes longer than looking for what to evict."""

    name = RAM

    def __init__(self, budget: int | None, order: EvictionOrder = ORDERS[ORDER], variants: int = VARIANTS) -> None:
        self._budget, self.most_variants = budget, variants
        self._order, self._lowest = order, LowestFirst(order)
        self.reuse = ReuseRecord()
        self._lock = BriefLock()
        self._ticks = count()
        self._residents = OrderedDict[str, Resident]()  # by digest, the one that was used longest ago first
        self._families: defaultdict[str, set[str]] = defaultdict(set)
        self._alike: defaultdict[str, dict[str, None]] = defaultdict(dict)  # of one chunk, in the same order
        self._prefixes = dict[str, None]()  # exact ones, of whatever engine
        self._pins = Pins()
        self.below: Callable[[VariantKey], bool] = lambda key: False  # whether a slower tier holds it
        self._eras = count(NO_ERA + 1)
        self._era = next(self._eras)
        self._nbytes = self._hits = self._misses = self._evictions = self._displaced = self._declined = 0

    @property
    def budget(self) -> int | None:
        return self._budget

    def leaving(self, budget: int | None) -> Leaving:
        with self._lock:
            return Leaving.of(self._beyond(budget))

    def fit(self, budget: int | None) -> Leaving:
        with self._lock:
            self._budget, gone = budget, self._beyond(budget)
            self._evict(gone)
        return Leaving.of(gone)

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        """What it holds was never in a file, or was looked at there."""

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        with self._lock:
            found = [self._residents[name].variant for name in self._families.get(family, ())]
        return list(map(self._info, found))

    def elsewhere(self, key: VariantKey, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        with self._lock:
            recent = (self._residents[name].variant for name in reversed(self._alike.get(key.chunk, {})))
            found = list(islice((one for one in recent if behind_another_system(one.key, key)), ELSEWHERE))
        return list(map(self._info, found))

    def everywhere(self, key: VariantKey) -> list[VariantKey]:
        with self._lock:
            found = [self._residents[name].variant.key for name in self._alike.get(key.chunk, ())]
        return [one for one in found if is_of(key, one)]

    def _info(self, held: Variant) -> VariantInfo:
        return VariantInfo(held.key, len(held), held.nbytes, self.name, held.profile, held.lossless, self.level)

    def open(self, key: VariantKey) -> OpenEntry | None:
        with self._lock:
            resident = self._residents.get(key.digest)
            if resident is None:
                self._misses += 1
                self.reuse.miss(key.digest)
                return None
            self._hits += 1
            self._touch(resident)
        return HeldEntry(resident.variant, self.name)

    def at_hand(self, key: VariantKey) -> OpenEntry | None:
        return self.open(key) if self.holds(key) else None

    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        if (found := self._take(variant, judges=not wanted)) is RoomFound.NONE:
            raise StoreError(
                f"a chunk of {len(variant)} tokens needs {variant.nbytes:,} bytes and the RAM budget of "
                f"{self._budget:,} cannot hold it beside the pinned entries: raise the budget or unpin some"
            )
        return found is RoomFound.THERE

    def era(self) -> int:
        return self._era

    def end_era(self) -> None:
        self._era = next(self._eras)

    def use(self, key: VariantKey) -> None:
        with self._lock:
            if (resident := self._residents.get(key.digest)) is not None:
                self._touch(resident)
            else:
                self.reuse.use(key.digest)

    def renew(self, key: VariantKey) -> None:
        with self._lock:
            if (resident := self._residents.get(key.digest)) is not None:
                self._move(resident)

    def trim(self, fingerprint: str, share: float, more: int = 0) -> None:
        with self._lock:
            found = {name: self._residents[name].variant.key for name in self._prefixes}
            own = [self._candidate(name) for name, key in found.items() if key.fingerprint.endswith(fingerprint)]
            need = sum(one.nbytes for one in own) + more - share_of(self._budget, share)
            loose = sorted((one for one in own if not self._pins.holds(one.name)), key=LRU.rank)
            for one in first_of(loose, need):  # no evictions, as on the disk
                self._drop(one.name)

    def _touch(self, resident: Resident) -> None:
        self.reuse.use(resident.variant.key.digest, resident.nbytes)
        self._move(resident)

    def _move(self, resident: Resident) -> None:
        key = resident.variant.key
        resident.used = next(self._ticks)
        self._residents.move_to_end(key.digest)
        alike = self._alike[key.chunk]
        alike[key.digest] = alike.pop(key.digest)

    def holds(self, key: VariantKey) -> bool:
        with self._lock:
            return key.digest in self._residents

    def offer(self, variant: Variant) -> bool:
        return self._take(variant, judges=True) is RoomFound.THERE

    def would_take(self, key: VariantKey, nbytes: int) -> bool:
        """If it was offered; nothing changes."""
        with self._lock:
            return self._room(key.digest, self._leaving(key), nbytes, judges=True)[0] is RoomFound.THERE

    def _take(self, variant: Variant, *, judges: bool) -> RoomFound:
        variant = compact(variant)
        name, nbytes = variant.key.digest, footprint(variant)
        with self._lock:
            self.reuse.fading.come(name, held=name in self._residents)
            leaving = self._leaving(variant.key)
            room, gone = self._room(name, leaving, nbytes, judges=judges)
            self._evict(gone)
            self._declined += room is RoomFound.DECLINED
            if room is not RoomFound.THERE:
                return room
            came = self._residents[name].came if name in self._residents else next(self._ticks)
            self.reuse.put(name, nbytes, held=self._drop(name))
            for one in leaving:
                self._displaced += self._drop(one)
                self.reuse.forget(one)
            self._residents[name] = Resident(variant, nbytes, next(self._ticks), came)
            self._families[variant.key.family].add(name)
            self._alike[variant.key.chunk][name] = None
            if is_prefix(variant.key):
                self._prefixes[name] = None
            self._nbytes += nbytes
        return room

    def delete(self, key: VariantKey) -> bool:
        with self._lock:
            self._pins.forget(key.digest)
            self.reuse.forget(key.digest)
            return self._drop(key.digest)

    def delete_here(self, key: VariantKey) -> bool:
        return not self.below(key) and self.delete(key)  # what it holds, where this was deleted, has come again

    def seeing(self, chunks: Collection[str]) -> list[VariantKey]:
        with self._lock:
            held = [resident.variant for resident in self._residents.values()]
        gone = set(chunks)
        return [
            one.key
            for one in held
            if not gone.isdisjoint((*one.key.context, *one.lineage.seen)) or not one.lineage.complete
        ]

    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        check_pin(owner, seconds)
        below = pinned and self.below(key)
        with self._lock:
            if pinned:
                self._pins.add(key.digest, owner, seconds, below=below)
            else:
                self._pins.remove(key.digest, owner)
            self._evict(self._beyond(self._budget))

    def stats(self) -> Sequence[TierStats]:
        with self._lock:
            held = (len(self._residents), self._nbytes, self._budget)
            counted = (self._hits, self._misses, self._evictions, 0, self._displaced, self._declined)
            return [TierStats(self.name, *held, *counted)]

    def verify(self) -> list[Flaw]:
        return []  # nothing is kept as bytes

    def check_integrity(self) -> None:
        with self._lock:
            assert self._nbytes == sum(resident.nbytes for resident in self._residents.values())
            loose = sum(one.nbytes for one in self._loose())
            assert self._budget is None or self._nbytes <= max(self._budget, self._nbytes - loose), self._budget
            assert all(resident.variant.key.digest == name for name, resident in self._residents.items())
            indexed = {name for names in self._families.values() for name in names}
            assert indexed == set(self._residents)
            assert all(self._families.values())
            held = {name for name, one in self._residents.items() if is_prefix(one.variant.key)}
            assert held == self._prefixes.keys()
            alike: defaultdict[str, list[str]] = defaultdict(list)
            for name, resident in self._residents.items():
                alike[resident.variant.key.chunk].append(name)
            assert alike == {chunk: list(names) for chunk, names in self._alike.items()}
            uses = [resident.used for resident in self._residents.values()]
            assert uses == sorted(uses)

    def _leaving(self, key: VariantKey) -> list[str]:
        """Variants of the same chunk that this one takes the place of."""
        others = (self._candidate(name) for name in self._families.get(key.family, ()) if name != key.digest)
        return [one.name for one in displaced(others, self._order, key.lead.digest, self.most_variants)]

    def _room(
        self, name: str, leaving: Collection[str], nbytes: int, *, judges: bool
    ) -> tuple[RoomFound, Sequence[Evictable]]:
        """For `nbytes` of this name in the place of those that leave, and what must be evicted before."""
        if self._budget is None:
            return RoomFound.THERE, ()
        spared = {name, *leaving}
        replaced = sum(self._residents[one].nbytes for one in spared if one in self._residents)
        need = self._nbytes - replaced + nbytes - self._budget
        if need <= 0:
            return RoomFound.THERE, ()
        if nbytes > self._budget:
            return RoomFound.NONE, ()
        new = self._judged(name, nbytes) if judges and name not in self._residents else None
        lesser = Lesser(self._loose(spared), new, self._order)
        if (chosen := victims(lesser, need)) is None:
            return RoomFound.DECLINED if lesser.ended else RoomFound.NONE, ()
        return RoomFound.THERE, chosen

    def _evict(self, chosen: Iterable[Evictable]) -> None:
        self._evictions += sum(self._drop(one.name) for one in chosen)

    def _beyond(self, budget: int | None) -> list[Evictable]:
        """What a budget has no room for, as far as it is not pinned."""
        return first_of(self._loose(), 0 if budget is None else self._nbytes - budget)

    def _loose(self, spared: Collection[str] = ()) -> Iterable[Evictable]:
        """Those that may be evicted, the first to go first. Not to be read on after a change."""
        loose = self._lowest.of(self._all_loose, lambda one: self._candidate(one) if one in self._residents else None)
        return (one for one in loose if one.name not in spared)

    def _all_loose(self) -> Iterable[Evictable]:
        """By their last use."""
        return (one for one in map(self._candidate, self._residents) if not one.pinned)

    def _candidate(self, name: str) -> Evictable:
        resident = self._residents[name]
        return self._judged(name, resident.nbytes, resident.used, resident.came)

    def _judged(self, name: str, nbytes: int, used: int = 0, came: int = 0) -> Evictable:
        uses = self.reuse.fading.of(name) if self._order.counts_uses else NEVER
        return Evictable(name, nbytes, used, self._pins.keeps(name), came, uses)

    def _drop(self, name: str) -> bool:
        resident = self._residents.pop(name, None)
        if resident is None:
            return False
        self._nbytes -= resident.nbytes
        family, chunk = resident.variant.key.family, resident.variant.key.chunk
        self._families[family].discard(name)
        del self._alike[chunk][name]
        self._prefixes.pop(name, None)
        if not self._families[family]:
            del self._families[family]
        if not self._alike[chunk]:
            del self._alike[chunk]
        return True
