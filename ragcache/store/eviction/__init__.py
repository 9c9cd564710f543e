"""Orders of eviction by name: what goes first when a tier is full, and which variant of a chunk a new one displaces.

A new one is a file here, an import and a line in ORDERS, and a row in tests/orders.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragcache.errors import ConfigError
from ragcache.store.eviction.base import Evictable, EvictionOrder
from ragcache.store.eviction.lru import least_recently_used
from ragcache.store.eviction.victims import VARIANTS

__all__ = ["ORDERS", "VARIANTS", "Evictable", "EvictionOrder", "open_order"]

ORDERS: Mapping[str, EvictionOrder] = {"lru": least_recently_used}


def open_order(name: str) -> EvictionOrder:
    if name not in ORDERS:
        raise ConfigError(f"unknown order of eviction {name!r}: choose from {', '.join(ORDERS)}")
    return ORDERS[name]
