"""Entries that are likely to be asked for, brought into memory before anybody does: nothing counts it as a use, and
nothing makes room for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod

import torch

from ragcache.errors import CorruptEntry, ForeignEntry
from ragcache.store.base import KVStore, OpenEntry
from ragcache.store.disk import DiskTier
from ragcache.store.findings import DISK, RAM
from ragcache.store.ram import RamTier
from ragcache.store.tiered import rises
from ragcache.types import VariantInfo, VariantKey


def lift(store: KVStore, likely: Sequence[VariantInfo], pause: Callable[[], None]) -> int:
    """As many of them as memory has room for, the first ones first -> how many came from the disk. What is farther is
    asked for, and nobody waits for it. `pause` is called before each. Raises StoreError.
    """
    ram, disk = _near(store)
    if disk is None:
        return 0
    if far := [info.key for info in likely if info.tier not in (RAM, DISK)]:
        store.near(lambda: far)
    if ram is None:
        return 0
    lifted = 0
    for info in likely:
        if ram.holds(info.key):
            continue
        pause()
        with suppress(CorruptEntry, ForeignEntry):  # it is quarantined, and told to whoever asks for it
            if (entry := disk.look(info.key)) is None:
                continue
            with entry:
                if not _fits(ram, entry):
                    break
                variant = entry.variant()
            lifted += rises(variant, ram, disk)
    return lifted


def lift_one(store: KVStore, key: VariantKey, pause: Callable[[], None]) -> bool:
    """Where memory has or makes room for it, as for what was read whole. `pause` is called before each block. Raises
    StoreError, CorruptEntry and ForeignEntry.
    """
    ram, disk = _near(store)
    if ram is None or disk is None or ram.holds(key) or (entry := disk.look(key)) is None:
        return False
    with entry:
        if not ram.would_take(key, _held_nbytes(entry)):
            return False
        k, v = torch.empty((2, *entry.shape), dtype=entry.dtype)
        for number, span in enumerate(entry.blocks):
            pause()
            tokens = slice(span.start, span.end)
            entry.read_into(number, range(entry.shape[0]), k[:, :, tokens], v[:, :, tokens])
        variant = entry.variant((k, v))
    return rises(variant, ram, disk)


def _near(store: KVStore) -> tuple[RamTier | None, DiskTier | None]:
    ram, tiers = store.memory, store.tiers()
    disk = next((tier for tier in tiers if isinstance(tier, DiskTier)), None)
    return ram if isinstance(ram, RamTier) else None, disk


def _fits(ram: RamTier, entry: OpenEntry) -> bool:
    (held,) = ram.stats()
    return held.budget is None or held.nbytes + _held_nbytes(entry) <= held.budget


def _held_nbytes(entry: OpenEntry) -> int:
    return 2 * prod(entry.shape) * entry.dtype.itemsize
