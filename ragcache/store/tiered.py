"""RAM over disk: the disk keeps, the RAM is quick."""

from __future__ import annotations

from collections.abc import Sequence

from ragcache.errors import StoreError
from ragcache.store.base import Fetched, Flaw, KVStore, TierStats
from ragcache.store.disk import DiskTier
from ragcache.store.eviction import VARIANTS
from ragcache.store.ram import RamTier
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey


class TieredStore(KVStore):
    """What is in RAM is on the disk too, save for what that had no room for, and what other processes have deleted or
    evicted there meanwhile.

    That is harmless: a key is the address of its content, so an entry can be superfluous but not out of date.
    """

    def __init__(self, ram: RamTier, disk: DiskTier) -> None:
        self._ram = ram
        self._disk = disk

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        self._disk.expect(form, fingerprint)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        infos = {info.key: info for info in self._disk.variants(family, flaws)}
        resident = {info.key: info for info in self._ram.variants(family)}
        if len(infos.keys() | resident.keys()) > VARIANTS:  # others have displaced some of ours on the disk
            for key in resident.keys() - infos.keys():
                self._ram.delete(key)
                del resident[key]
        return list((infos | resident).values())

    def get(self, key: VariantKey) -> Fetched | None:
        fetched = self._ram.get(key)
        if fetched is not None:
            self._disk.use(key)  # or the disk would evict what is used most
            return fetched
        fetched = self._disk.get(key)
        if fetched is not None:
            self._promote(fetched.variant)
        return fetched

    def put(self, variant: Variant) -> None:
        try:
            self._disk.put(variant)
        except StoreError:
            self._ram.offer(variant)  # it serves as long as this process runs
            raise
        self._promote(variant)

    def delete(self, key: VariantKey) -> bool:
        # The disk first: see _promote.
        on_disk = self._disk.delete(key)
        in_ram = self._ram.delete(key)
        return on_disk or in_ram

    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        """In both tiers; the disk's pin alone survives a restart."""
        self._disk.pin(key, pinned, owner=owner, seconds=seconds)
        self._ram.pin(key, pinned, owner=owner, seconds=seconds)

    def stats(self) -> Sequence[TierStats]:
        return [*self._ram.stats(), *self._disk.stats()]

    def verify(self) -> list[Flaw]:
        return self._disk.verify()

    def check_integrity(self) -> None:
        self._ram.check_integrity()
        self._disk.check_integrity()

    def _promote(self, variant: Variant) -> None:
        """Into RAM where it fits. A thread that deleted the entry since we had it from the disk must win."""
        if self._ram.offer(variant) and not self._disk.holds(variant.key):
            self._ram.delete(variant.key)
