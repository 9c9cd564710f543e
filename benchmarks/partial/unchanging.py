"""A store that stays as it is, so that each round of a benchmark lacks the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ragcache.store.base import Flaw, KVStore, OpenEntry, TierStats
from ragcache.store.budgets import BudgetedTier
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey


class UnchangingStore(KVStore):
    """What is put is forgotten."""

    def __init__(self, store: KVStore):
        self._store = store

    def tiers(self) -> Sequence[BudgetedTier]:
        return self._store.tiers()

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        self._store.expect(form, fingerprint)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        return self._store.variants(family, flaws)

    def elsewhere(self, key: VariantKey, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        return self._store.elsewhere(key, flaws)

    def everywhere(self, key: VariantKey) -> list[VariantKey]:
        return self._store.everywhere(key)

    def open(self, key: VariantKey) -> OpenEntry | None:
        return self._store.open(key)

    def use(self, key: VariantKey) -> None:
        self._store.use(key)

    def renew(self, key: VariantKey) -> None:
        self._store.renew(key)

    def at_hand(self, key: VariantKey) -> OpenEntry | None:
        return self._store.at_hand(key)

    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        return False

    def era(self) -> int:
        return self._store.era()

    def end_era(self) -> None:
        pass

    def delete(self, key: VariantKey) -> bool:
        return False

    def seeing(self, chunks: Collection[str]) -> list[VariantKey]:
        return self._store.seeing(chunks)

    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        pass

    def trim(self, fingerprint: str, share: float, more: int = 0) -> None:
        pass

    def stats(self) -> Sequence[TierStats]:
        return self._store.stats()

    def verify(self) -> list[Flaw]:
        return self._store.verify()

    def check_integrity(self) -> None:
        self._store.check_integrity()
