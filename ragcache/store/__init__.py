"""The KVStore: variants by key, in RAM, on disk, or in RAM over disk."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragcache.store.base import KVStore
    from ragcache.store.disk import DiskTier
    from ragcache.store.opening import open_store
    from ragcache.store.ram import RamTier

_PLACES = {"DiskTier": "disk", "KVStore": "base", "RamTier": "ram", "open_store": "opening"}
__all__ = ["DiskTier", "KVStore", "RamTier", "open_store"]


def __getattr__(name: str) -> object:
    """Loaded on first use: who only counts files has no use for torch."""
    if name not in _PLACES:
        raise AttributeError(f"module 'ragcache.store' has no attribute {name!r}")
    return getattr(import_module(f"ragcache.store.{_PLACES[name]}"), name)
