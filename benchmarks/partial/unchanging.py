"""A store that stays as it is, so that each round of a benchmark lacks the same."""

from __future__ import annotations

from ragcache.store.over import StoreOver
from ragcache.types import Variant, VariantKey


class UnchangingStore(StoreOver):
    """What is put is forgotten."""

    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        return False

    def end_era(self) -> None:
        pass

    def delete(self, key: VariantKey) -> bool:
        return False

    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        pass

    def trim(self, fingerprint: str, share: float, more: int = 0) -> None:
        pass
