"""A store from its settings."""

from __future__ import annotations

from pathlib import Path

from ragcache.errors import ConfigError
from ragcache.store.base import KVStore
from ragcache.store.codec import open_codec
from ragcache.store.disk import DiskTier
from ragcache.store.ram import RamTier
from ragcache.store.tiered import TieredStore


def open_store(
    root: Path | None, ram_bytes: int | None, disk_bytes: int | None, codec: str, heads: slice | None = None
) -> KVStore:
    """A store over a folder, RAM, or both. None bytes are unbounded, 0 bytes leave the tier out, as does no root.

    `heads`: the K/V heads that are brought from the folder, and kept in RAM; None is all. Nothing is put into such one.
    """
    open_codec(codec)  # a wrong name is said even where no file is written
    for name, budget in (("RAM", ram_bytes), ("disk", disk_bytes)):
        if budget is not None and budget < 0:
            raise ConfigError(f"the {name} budget is {budget} bytes: give 0 for none, or leave it out for no limit")
    ram = None if ram_bytes == 0 else RamTier(ram_bytes)
    disk = None if root is None or disk_bytes == 0 else DiskTier(root, disk_bytes, codec, heads=heads)
    if ram is not None and disk is not None:
        return TieredStore(ram, disk)
    only = ram or disk
    if only is None:
        raise ConfigError("the store has no tier: give it a RAM budget, or a folder with a disk budget")
    return only
