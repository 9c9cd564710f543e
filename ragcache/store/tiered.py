"""A store of its tiers: over one another, the last one keeps and the others are quick."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial

import torch

from ragcache.errors import StoreError
from ragcache.store.base import ELSEWHERE, KV, KVStore, OpenEntry, Tier
from ragcache.store.budgets import BudgetedTier
from ragcache.store.findings import Flaw, TierStats
from ragcache.store.ram import RamTier
from ragcache.types import KVForm, Origin, Variant, VariantInfo, VariantKey


class TieredStore(KVStore):
    """What is in a faster tier is in the last one too, save for what that had no room for, and what other processes
    have deleted or evicted there meanwhile.

    That is harmless: a key is the address of its content, so an entry can be superfluous but not out of date.
    """

    def __init__(self, *tiers: Tier) -> None:
        """The fastest first."""
        *self._faster, self._last = self._tiers = tiers
        self.most_variants = self._last.most_variants
        for level, tier in enumerate(tiers):
            tier.level = level
        for tier in self._faster:
            if isinstance(tier, RamTier):
                tier.below = self._last.holds

    def tiers(self) -> Sequence[BudgetedTier]:
        return self._tiers

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        for tier in self._tiers:
            tier.expect(form, fingerprint)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        infos = {info.key: info for info in self._last.variants(family, flaws)}
        for tier in reversed(self._faster):
            held = {info.key: info for info in tier.variants(family, flaws)}
            every = infos.keys() | held.keys()
            leads = sum(not one.context for one in every)  # beside which there is always room for one
            if len(every) > max(self.most_variants, leads + 1):  # others have displaced some of ours in the last one
                for key in [one for one in held.keys() - infos.keys() if one.context]:  # the lead stays, as there
                    tier.delete(key)
                    del held[key]
            infos |= held
        return list(infos.values())

    def elsewhere(self, key: VariantKey, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        infos: dict[VariantKey, VariantInfo] = {}
        for tier in self._tiers:
            infos = {info.key: info for info in tier.elsewhere(key, flaws)} | infos
        return sorted(infos.values(), key=lambda info: info.level)[:ELSEWHERE]

    def everywhere(self, key: VariantKey) -> list[VariantKey]:
        return list({one: None for tier in self._tiers for one in tier.everywhere(key)})

    def open(self, key: VariantKey) -> OpenEntry | None:
        for level, tier in enumerate(self._tiers):
            if (entry := tier.open(key)) is not None:
                for slower in self._tiers[level + 1 :]:
                    slower.use(key)  # or it would evict what is used most
                return _RisingEntry(entry, partial(self._promote, level=level)) if level else entry
        return None

    def at_hand(self, key: VariantKey) -> OpenEntry | None:
        for level, tier in enumerate(self._faster):
            if (entry := tier.at_hand(key)) is not None:
                for slower in self._tiers[level + 1 :]:
                    slower.use(key)
                return entry
        return None

    def use(self, key: VariantKey) -> None:
        for tier in self._tiers:
            tier.use(key)

    def credit(self, key: VariantKey, worth: float) -> None:
        for tier in self._tiers:
            tier.credit(key, worth)

    def renew(self, key: VariantKey) -> None:
        for tier in self._tiers:
            tier.renew(key)

    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        try:
            kept = self._last.put(variant, wanted=wanted)
        except StoreError:
            self._offer(variant)
            raise
        if kept:
            self._promote(variant, len(self._faster))
        else:
            self._offer(variant)
        return kept

    def _offer(self, variant: Variant) -> None:
        """What the last tier does not keep: it serves as long as this process runs."""
        for tier in self._faster:
            tier.offer(variant)

    def era(self) -> int:
        return self._last.era()

    def end_era(self) -> None:
        self._last.end_era()

    def delete(self, key: VariantKey) -> bool:
        # The last one first: see `rises`.
        deleted = [tier.delete(key) for tier in reversed(self._tiers)]
        return any(deleted)

    def seeing(self, chunks: Collection[str]) -> list[VariantKey]:
        return list({key: None for tier in self._tiers for key in tier.seeing(chunks)})

    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        """In all tiers; the last one's pin alone survives a restart, and keeps what it holds from going."""
        for tier in reversed(self._tiers):
            tier.pin(key, pinned, owner=owner, seconds=seconds)

    def trim(self, fingerprint: str, share: float, more: int = 0) -> None:
        for tier in reversed(self._tiers):  # as `delete`
            tier.trim(fingerprint, share, more)

    def stats(self) -> Sequence[TierStats]:
        return [stats for tier in self._tiers for stats in tier.stats()]

    def verify(self) -> list[Flaw]:
        return [flaw for tier in self._tiers for flaw in tier.verify()]

    def close(self) -> None:
        for tier in self._tiers:
            tier.close()

    def check_integrity(self) -> None:
        for tier in self._tiers:
            tier.check_integrity()

    def _promote(self, variant: Variant, level: int) -> None:
        """Into the tiers over this one, where it fits."""
        for tier in self._tiers[:level]:
            rises(variant, tier, self._last)


def rises(variant: Variant, tier: Tier, last: Tier) -> bool:
    """Whether a faster tier takes what the last one has. A thread that deleted the entry since we had it must win."""
    if not tier.offer(variant):
        return False
    if last.holds(variant.key):
        return True
    tier.delete(variant.key)
    return False


class _RisingEntry(OpenEntry):
    """An entry of a slower tier: if all of it has been read by its end, the faster ones are offered it."""

    def __init__(self, entry: OpenEntry, promote: Callable[[Variant], None]):
        self._entry, self._promote = entry, promote
        self.tier, self.nbytes, self.blocks = entry.tier, entry.nbytes, entry.blocks
        self.shape, self.dtype = entry.shape, entry.dtype
        self._lock = threading.Lock()
        self._room: torch.Tensor | None = None  # for the parts
        self._unread = {(block, layer) for block in range(len(self.blocks)) for layer in range(self.shape[0])}
        self._whole: Variant | None = None  # when it has been read

    def origin(self) -> Origin:
        return self._entry.origin()

    def variant(self, read: KV | None = None) -> Variant:
        self._whole = whole = self._entry.variant(read)
        return whole

    def read(self, block: int, layers: range) -> KV:
        if len(self.blocks) == 1 and layers == range(self.shape[0]):
            kv = self._entry.read(block, layers)
            self.variant(kv)
            return kv
        return self._part(block, layers)

    def _part(self, block: int, layers: range) -> KV:
        """Read to where the faster tiers will have it."""
        wanted, span = {(block, layer) for layer in layers}, self.blocks[block]
        with self._lock:
            room = self._room = torch.empty((2, *self.shape), dtype=self.dtype) if self._room is None else self._room
            unread = bool(wanted & self._unread)
        k, v = room[:, layers.start : layers.stop, :, span.start : span.end]
        if unread:  # what two threads read at once is written twice, and is the same
            self._entry.read_into(block, layers, k, v)
            with self._lock:
                is_last = bool(wanted & self._unread)
                self._unread -= wanted
                is_last = is_last and not self._unread
            if is_last:
                whole_k, whole_v = room
                self.variant((whole_k, whole_v))
        return k, v

    def close(self) -> None:
        self._entry.close()
        if self._whole is not None:
            self._promote(self._whole)
