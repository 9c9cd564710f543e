"""A store that hands on what is asked of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ragcache.store.base import KVStore, OpenEntry
from ragcache.store.budgets import BudgetedTier
from ragcache.store.findings import Flaw, TierStats
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey


class StoreOver(KVStore):
    """Over another one, which does what a subclass does not do itself. What a KVStore makes of its other methods is
    made of the subclass's here too.
    """

    def __init__(self, inner: KVStore) -> None:
        self._inner = inner
        self.most_variants = inner.most_variants

    def tiers(self) -> Sequence[BudgetedTier]:
        return self._inner.tiers()

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        self._inner.expect(form, fingerprint)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        return self._inner.variants(family, flaws)

    def nearby(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        return self._inner.nearby(family, flaws)

    def elsewhere(self, key: VariantKey, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        return self._inner.elsewhere(key, flaws)

    def everywhere(self, key: VariantKey) -> list[VariantKey]:
        return self._inner.everywhere(key)

    def open(self, key: VariantKey) -> OpenEntry | None:
        return self._inner.open(key)

    def at_hand(self, key: VariantKey) -> OpenEntry | None:
        return self._inner.at_hand(key)

    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        return self._inner.put(variant, wanted=wanted)

    def era(self) -> int:
        return self._inner.era()

    def end_era(self) -> None:
        self._inner.end_era()

    def use(self, key: VariantKey) -> None:
        self._inner.use(key)

    def credit(self, key: VariantKey, worth: float) -> None:
        self._inner.credit(key, worth)

    def renew(self, key: VariantKey) -> None:
        self._inner.renew(key)

    def delete(self, key: VariantKey) -> bool:
        return self._inner.delete(key)

    def seeing(self, chunks: Collection[str]) -> list[VariantKey]:
        return self._inner.seeing(chunks)

    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        self._inner.pin(key, pinned, owner=owner, seconds=seconds)

    def trim(self, fingerprint: str, share: float, more: int = 0) -> None:
        self._inner.trim(fingerprint, share, more)

    def stats(self) -> Sequence[TierStats]:
        return self._inner.stats()

    def verify(self) -> list[Flaw]:
        return self._inner.verify()

    def close(self) -> None:
        self._inner.close()

    def check_integrity(self) -> None:
        self._inner.check_integrity()
