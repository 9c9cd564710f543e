"""Orders of eviction by name: what goes first when a tier is full, and which variant of a chunk a new one displaces.

A new one is a file here, an import and a line in ORDERS, and a row in tests/orders.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragcache.errors import ConfigError
from ragcache.store.eviction.base import NEVER, Evictable, EvictionOrder, Uses
from ragcache.store.eviction.craft import CRAFT
from ragcache.store.eviction.fifo import FIFO
from ragcache.store.eviction.lfu import LFU
from ragcache.store.eviction.lru import LRU
from ragcache.store.eviction.value import VALUE
from ragcache.store.eviction.victims import MOST_VARIANTS, VARIANTS
from ragcache.store.findings import BUCKET, DISK, RAM, TIERS

__all__ = [
    "MOST_VARIANTS",
    "NEVER",
    "ORDERS",
    "VARIANTS",
    "Evictable",
    "EvictionOrder",
    "Uses",
    "check_variants",
    "open_order",
    "open_orders",
    "order_names",
]

ORDERS: Mapping[str, EvictionOrder] = {
    "lru": LRU,
    "fifo": FIFO,
    "lfu": LFU,
    "craft": CRAFT,
    "value": VALUE,
}


def open_order(name: str) -> EvictionOrder:
    if name not in ORDERS:
        raise ConfigError(f"unknown order of eviction {name!r}: choose from {', '.join(ORDERS)}")
    return ORDERS[name]


def check_variants(variants: int) -> None:
    """Of a chunk, that are kept. Raises ConfigError; a configuration may hold anything."""
    if not isinstance(variants, int) or isinstance(variants, bool) or not 1 <= variants <= MOST_VARIANTS:
        raise ConfigError(f"variants is {variants!r}: keep 1 to {MOST_VARIANTS} of a chunk")


def order_names(names: str) -> dict[str, str]:
    """Of each tier, of a name for all or of `ram=…,disk=…,bucket=…`; a bucket that is not named goes by the disk's."""
    given = _given(names) if "=" in names else dict.fromkeys(TIERS, names)
    for name in given.values():
        open_order(name)
    return {BUCKET: given[DISK], **given}


def _given(names: str) -> dict[str, str]:
    parts = [part.strip().partition("=") for part in names.split(",")]
    given = {tier: name for tier, _, name in parts}
    if len(given) != len(parts) or not {RAM, DISK} <= given.keys() <= {*TIERS}:
        told = (
            "give one for all tiers, or ram=NAME,disk=NAME, and bucket=NAME where that is to be another than the disk's"
        )
        raise ConfigError(f"the order of eviction is {names!r}: {told}")
    return given


def open_orders(names: str) -> tuple[EvictionOrder, EvictionOrder, EvictionOrder]:
    """Of RAM, of the disk and of a bucket."""
    given = order_names(names)
    return ORDERS[given[RAM]], ORDERS[given[DISK]], ORDERS[given[BUCKET]]
