"""The RAM tier: decoded variants, ready to be placed."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count

import torch

from ragcache.errors import StoreError
from ragcache.store.base import Fetched, Flaw, KVStore, TierStats
from ragcache.store.eviction import Evictable, EvictionOrder, displaced, least_recently_used, victims
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey


@dataclass
class _Resident:
    variant: Variant
    nbytes: int  # of memory that it keeps alive
    used: int


class RamTier(KVStore):
    """One lock guards all: nothing under it takes longer than an eviction's sort."""

    def __init__(self, budget: int | None, order: EvictionOrder = least_recently_used) -> None:
        self._budget = budget
        self._order = order
        self._lock = threading.Lock()
        self._ticks = count()
        self._residents: dict[VariantKey, _Resident] = {}
        self._families: defaultdict[str, set[VariantKey]] = defaultdict(set)
        self._pinned: set[VariantKey] = set()
        self._nbytes = self._hits = self._misses = self._evictions = self._displaced = 0

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        """What it holds was never in a file, or was looked at there."""

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        with self._lock:
            found = [self._residents[key].variant for key in self._families.get(family, ())]
        return [VariantInfo(item.key, len(item), item.nbytes, "ram", item.profile, item.lossless) for item in found]

    def get(self, key: VariantKey) -> Fetched | None:
        started = time.perf_counter()
        with self._lock:
            resident = self._residents.get(key)
            if resident is None:
                self._misses += 1
                return None
            self._hits += 1
            resident.used = next(self._ticks)
        variant = resident.variant
        return Fetched(variant, "ram", variant.nbytes, time.perf_counter() - started)

    def put(self, variant: Variant) -> None:
        if not self.offer(variant):
            raise StoreError(
                f"a chunk of {len(variant)} tokens needs {variant.nbytes:,} bytes and the RAM budget of "
                f"{self._budget:,} cannot hold it beside the pinned entries: raise the budget or unpin some"
            )

    def offer(self, variant: Variant) -> bool:
        """Keep it if there is room for it; says whether."""
        variant = _compact(variant)
        nbytes = _footprint(variant)
        with self._lock:
            leaving = self._leaving(variant.key)
            if not self._make_room({variant.key, *leaving}, nbytes):
                return False
            self._drop(variant.key)
            self._displaced += sum(map(self._drop, leaving))
            self._residents[variant.key] = _Resident(variant, nbytes, next(self._ticks))
            self._families[variant.key.family].add(variant.key)
            self._nbytes += nbytes
        return True

    def delete(self, key: VariantKey) -> bool:
        with self._lock:
            self._pinned.discard(key)
            return self._drop(key)

    def pin(self, key: VariantKey, pinned: bool = True) -> None:
        with self._lock:
            if pinned:
                self._pinned.add(key)
            else:
                self._pinned.discard(key)

    def stats(self) -> Sequence[TierStats]:
        with self._lock:
            held = (len(self._residents), self._nbytes, self._budget)
            return [TierStats("ram", *held, self._hits, self._misses, self._evictions, 0, self._displaced)]

    def verify(self) -> list[Flaw]:
        return []  # nothing is kept as bytes

    def check_integrity(self) -> None:
        with self._lock:
            assert self._nbytes == sum(resident.nbytes for resident in self._residents.values())
            assert self._budget is None or self._nbytes <= self._budget, (self._nbytes, self._budget)
            assert all(resident.variant.key == key for key, resident in self._residents.items())
            indexed = {key for keys in self._families.values() for key in keys}
            assert indexed == set(self._residents)
            assert all(self._families.values())

    def _leaving(self, key: VariantKey) -> list[VariantKey]:
        """Variants of the same chunk that this one takes the place of."""
        others = {held.digest: held for held in self._families.get(key.family, ()) if held != key}
        candidates = map(self._candidate, others.values())
        return [others[one.name] for one in displaced(candidates, self._order, key.lead.digest)]

    def _make_room(self, leaving: Collection[VariantKey], nbytes: int) -> bool:
        """Evict until `nbytes` fit in the place of those that leave; nothing is evicted when that cannot be."""
        if self._budget is None:
            return True
        replaced = sum(self._residents[key].nbytes for key in leaving if key in self._residents)
        need = self._nbytes - replaced + nbytes - self._budget
        if need <= 0:
            return True
        others = {held.digest: held for held in self._residents if held not in leaving}
        chosen = victims(map(self._candidate, others.values()), self._order, need)
        for candidate in chosen or ():
            self._drop(others[candidate.name])
            self._evictions += 1
        return chosen is not None

    def _candidate(self, key: VariantKey) -> Evictable:
        resident = self._residents[key]
        return Evictable(key.digest, resident.nbytes, resident.used, key in self._pinned)

    def _drop(self, key: VariantKey) -> bool:
        resident = self._residents.pop(key, None)
        if resident is None:
            return False
        self._nbytes -= resident.nbytes
        self._families[key.family].discard(key)
        if not self._families[key.family]:
            del self._families[key.family]
        return True


def _footprint(variant: Variant) -> int:
    """Bytes of the memory behind K and V, which they may share, and of the profile."""
    storages = (variant.k.untyped_storage(), variant.v.untyped_storage())
    kv = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    return kv + variant.profile.nbytes


def _compact(variant: Variant) -> Variant:
    """In CPU memory, and not a small view that keeps a large buffer alive (a slice of a prompt's KV)."""
    if variant.k.is_cpu and _footprint(variant) < 2 * variant.nbytes:
        return variant
    return replace(variant, k=_copy(variant.k), v=_copy(variant.v))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().clone(memory_format=torch.contiguous_format)
