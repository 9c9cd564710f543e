"""All that a store holds of one chunk, whatever context its variants were computed in."""

from __future__ import annotations

from ragcache.store.base import KVStore
from ragcache.types import VariantKey


def drop_chunk(store: KVStore, fingerprint: str, system: str, chunk: str) -> int:
    """Delete every variant of a chunk (by its token hash) behind one System segment (by its hash); returns how many.

    Variants that others put meanwhile may stay. Raises StoreError.
    """
    family = VariantKey(fingerprint, system, (), chunk).family
    return sum(store.delete(info.key) for info in store.variants(family))
