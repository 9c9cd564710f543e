"""From a folder, budgets and names to a store."""

from __future__ import annotations

from pathlib import Path

from ragcache.errors import ConfigError
from ragcache.store.base import KVStore, Tier
from ragcache.store.codec import open_codec
from ragcache.store.defaults import CODEC, ORDER
from ragcache.store.disk import DiskTier
from ragcache.store.disk_room import Floor
from ragcache.store.eviction import VARIANTS, EvictionOrder, check_variants, open_orders
from ragcache.store.ram import RamTier
from ragcache.store.tiered import TieredStore


def open_store(
    root: Path | None = None,
    *,
    ram_bytes: int | None = None,
    disk_bytes: int | None = None,
    codec: str = CODEC,
    heads: slice | None = None,
    order: str = ORDER,
    disk_floor: Floor = 0,
    evicts: bool = True,
    remote: str | None = "",
    remote_bytes: int | None = None,
    remote_patience_s: float | None = None,
    variants: int = VARIANTS,
) -> KVStore:
    """A store over a folder, RAM, or both. None bytes are unbounded, 0 bytes leave the tier out, as does no root.

    `codec`: of files; each says by itself how it is read.
    `heads`: the K/V heads that are brought from the folder, and kept in RAM; None is all. Nothing is put into such one.
    `order`: what goes first where a tier is full, by its name, or one for each tier (`open_orders`). `disk_floor` and
    `evicts` are the disk tier's. `remote`: the URL of a bucket that the folder is the cache of; `remote_bytes` are
    those of all who share it; for so long what another process has planned is looked for there.
    `variants`: of a chunk behind one System segment that are kept; others who have the folder may keep more or fewer,
    which their own puts alone go by.
    """
    open_codec(codec)  # a wrong name is said even where no file is written
    check_variants(variants)
    _check_bucket(remote, remote_bytes)
    of_ram, of_disk, of_bucket = open_orders(order)
    for name, budget in (("RAM", ram_bytes), ("disk", disk_bytes)):
        if budget is not None and budget < 0:
            raise ConfigError(f"the {name} budget is {budget} bytes: give 0 for none, or leave it out for no limit")
    ram = None if ram_bytes == 0 else RamTier(ram_bytes, of_ram, variants)
    disk = None
    if root is not None and disk_bytes != 0:
        disk = DiskTier(root, disk_bytes, codec, of_disk, heads, floor=disk_floor, evicts=evicts, variants=variants)
    if remote:
        if disk is None:
            raise ConfigError("a bucket needs a disk as its cache: give it a folder with a disk budget")
        return _shared(ram, disk, remote, remote_bytes, heads, remote_patience_s, of_bucket)
    if ram is not None and disk is not None:
        return TieredStore(ram, disk)
    only = ram or disk
    if only is None:
        raise ConfigError("the store has no tier: give it a RAM budget, or a folder with a disk budget")
    return only


def _check_bucket(url: object, nbytes: object) -> None:
    """Of a file that anybody wrote."""
    if url is not None and not isinstance(url, str):
        raise ConfigError(f"the bucket is {url!r}: give its URL")
    if nbytes is not None and (type(nbytes) is not int or nbytes < 1):
        raise ConfigError(f"the bucket's budget is {nbytes!r}: give a number of bytes, or leave it out for no limit")


def _shared(
    ram: Tier | None,
    disk: DiskTier,
    url: str,
    budget: int | None,
    heads: slice | None,
    patience_s: float | None,
    order: EvictionOrder,
) -> KVStore:
    from ragcache.store.remote.bucket import Bucket
    from ragcache.store.remote.store import SharedStore

    faster = [] if ram is None else [ram]
    return SharedStore(
        TieredStore(*faster, disk),
        disk,
        faster,
        Bucket(url),
        budget=budget,
        heads=heads,
        patience_s=patience_s,
        order=order,
    )
