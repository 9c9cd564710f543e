"""Tiers over one another: the last one keeps, the others are quick."""

from __future__ import annotations

from collections.abc import Sequence

from ragcache.errors import StoreError
from ragcache.policy.eviction import VARIANTS
from ragcache.store.base import Fetched, Flaw, KVStore, Tier, TierStats
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey


class TieredStore(KVStore):
    """What is in a faster tier is in the last one too, save for what that had no room for, and what other processes
    have deleted or evicted there meanwhile.

    That is harmless: a key is the address of its content, so an entry can be superfluous but not out of date.
    """

    def __init__(self, *tiers: Tier) -> None:
        """The fastest first."""
        *self._faster, self._last = self._tiers = tiers
        for level, tier in enumerate(tiers):
            tier.level = level

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        for tier in self._tiers:
            tier.expect(form, fingerprint)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        infos = {info.key: info for info in self._last.variants(family, flaws)}
        for tier in reversed(self._faster):
            held = {info.key: info for info in tier.variants(family, flaws)}
            if len(infos.keys() | held.keys()) > VARIANTS:  # others have displaced some of ours in the last one
                for key in held.keys() - infos.keys():
                    tier.delete(key)
                    del held[key]
            infos |= held
        return list(infos.values())

    def get(self, key: VariantKey) -> Fetched | None:
        for level, tier in enumerate(self._tiers):
            fetched = tier.get(key)
            if fetched is None:
                continue
            for slower in self._tiers[level + 1 :]:
                slower.use(key)  # or it would evict what is used most
            self._promote(fetched.variant, level)
            return fetched
        return None

    def put(self, variant: Variant) -> None:
        try:
            self._last.put(variant)
        except StoreError:
            for tier in self._faster:
                tier.offer(variant)  # it serves as long as this process runs
            raise
        self._promote(variant, len(self._faster))

    def delete(self, key: VariantKey) -> bool:
        # The last one first: see _promote.
        deleted = [tier.delete(key) for tier in reversed(self._tiers)]
        return any(deleted)

    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        """In all tiers; the last one's pin alone survives a restart."""
        for tier in reversed(self._tiers):
            tier.pin(key, pinned, owner=owner, seconds=seconds)

    def stats(self) -> Sequence[TierStats]:
        return [stats for tier in self._tiers for stats in tier.stats()]

    def verify(self) -> list[Flaw]:
        return [flaw for tier in self._tiers for flaw in tier.verify()]

    def check_integrity(self) -> None:
        for tier in self._tiers:
            tier.check_integrity()

    def _promote(self, variant: Variant, level: int) -> None:
        """Into the tiers over this one, where it fits. A thread that deleted the entry since we had it must win."""
        for tier in self._tiers[:level]:
            if tier.offer(variant) and not self._last.holds(variant.key):
                tier.delete(variant.key)
