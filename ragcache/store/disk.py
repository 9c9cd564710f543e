"""The disk tier: one file per variant, shared by any number of processes.

Readers take no lock: a file is renamed into place whole, and one that vanishes while it is looked for is a miss. What
changes the folder does so inside `Ledger.change`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ragcache.errors import CorruptEntry, ForeignEntry, StoreError
from ragcache.private import private_file, private_folder
from ragcache.store.base import Fetched, Flaw, KVStore, TierStats
from ragcache.store.codec import open_codec
from ragcache.store.durable import opened, remove_if_empty, size_of, stat_of, sweep, sync_folder, written_beside
from ragcache.store.entry import EntryReader, pack
from ragcache.store.eviction import Evictable, EvictionOrder, displaced, least_recently_used, victims
from ragcache.store.info_cache import EntryStamp, InfoCache
from ragcache.store.layout import FolderLayout
from ragcache.store.ledger import FolderUsage, Ledger
from ragcache.store.quarantine import BadFile, BadFileRemoval, Quarantine
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey

_SPARE = 20  # an eviction frees a 20th of the budget, because looking for victims reads the whole folder


class DiskTier(KVStore):
    def __init__(
        self,
        root: Path,
        budget: int | None,
        codec: str,
        order: EvictionOrder = least_recently_used,
        heads: slice | None = None,
    ) -> None:
        """Opens or creates the folder. `codec` is for what is put; each file says what it is read with. `heads`: those
        K/V heads that `get` brings; a file holds all of them, so such a tier takes nothing in.
        """
        root = root.resolve()  # a program may change its working directory
        self._layout = FolderLayout(root)
        self._codec = open_codec(codec)
        self._budget, self._order, self._heads = budget, order, heads
        self._forms: dict[str, KVForm] = {}  # by fingerprint; "" is any engine
        self._infos = InfoCache()
        self._quarantine = Quarantine(self._layout.quarantine)
        self._removal = BadFileRemoval(self._take_away)
        self._counts: Counter[str] = Counter()  # of this process, since it opened the store
        self._counting = threading.Lock()
        self._ledger = Ledger(self._layout.usage, self._count)
        with self._reporting("open"):
            private_folder(root)
            with self._ledger.change(recount=True) as usage:
                sweep(self._layout.temporaries())
                self._make_room(usage, 0)  # the budget may be smaller than last time

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        self._forms[fingerprint] = form

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        met: list[Flaw] = [] if flaws is None else flaws
        with self._reporting("read"):
            infos = [self._info(path, family, met) for path in self._layout.family(family)]
        return [info for info in infos if info is not None]

    def get(self, key: VariantKey) -> Fetched | None:
        started = time.perf_counter()
        path = self._layout.entry(key)
        with self._reporting("read"), opened(path) as fd:
            if fd is None:
                self._tally("misses")
                return None
            with self._quarantining(path, fd):
                reader = EntryReader.parts(fd, str(path))
                reader.expect(key)
                self._expect_form(reader, path)
                variant = reader.whole(fd).variant(self._heads)
            self._touch(fd)
        self._tally("hits")
        return Fetched(variant, "disk", reader.file_size, time.perf_counter() - started)

    def put(self, variant: Variant) -> None:
        assert self._heads is None, "some heads of a variant are no variant"
        target = self._layout.entry(variant.key)
        parts = pack(variant, self._codec)
        nbytes = sum(map(len, parts))
        with self._reporting("write to"), written_beside(target, parts) as temporary:
            with self._ledger.change() as usage:
                self._replace(target, temporary, nbytes, usage, self._leaving(variant.key))
            sync_folder(target.parent)

    def delete(self, key: VariantKey) -> bool:
        path = self._layout.entry(key)
        with self._reporting("delete from"), self._ledger.change() as usage:
            self._layout.pin(path).unlink(missing_ok=True)
            return self._remove(path, usage)

    def pin(self, key: VariantKey, pinned: bool = True) -> None:
        entry = self._layout.entry(key)
        # Under the lock, so that no eviction that has looked for pins already takes the entry.
        with self._reporting("pin in"), self._ledger.change():
            if pinned:
                private_file(self._layout.pin(entry))
            else:
                self._layout.pin(entry).unlink(missing_ok=True)
                remove_if_empty(entry.parent)

    def touch(self, key: VariantKey) -> bool:
        """Count a use that another tier served; says whether the entry is here."""
        path = self._layout.entry(key)
        with self._reporting("read"), opened(path) as fd:
            if fd is not None:
                self._touch(fd)
            return fd is not None

    def stats(self) -> Sequence[TierStats]:
        self._removal.settle()
        with self._reporting("read"):
            usage = self._ledger.read()
        with self._counting:
            seen = self._counts.copy()
        told = [seen[name] for name in ("hits", "misses", "evictions", "quarantined", "displaced")]
        return [TierStats("disk", usage.entries, usage.nbytes, self._budget, *told)]

    def verify(self) -> list[Flaw]:
        self._removal.settle()
        with self._reporting("read"):
            flaws = [self._flaw(Path(candidate.name)) for candidate in self._layout.entries()]
        return [flaw for flaw in flaws if flaw is not None]

    def check_integrity(self) -> None:
        self._removal.settle()
        recorded, counted = self._ledger.audit()
        assert recorded == counted, (recorded, counted)
        pinned = sum(entry.nbytes for entry in self._layout.entries() if entry.pinned)
        # Pinned entries outlive a budget that was lowered below them.
        assert self._budget is None or counted.nbytes <= max(self._budget, pinned), (counted, self._budget)

    def _info(self, path: Path, family: str, flaws: list[Flaw]) -> VariantInfo | None:
        stat = stat_of(path)
        if stat is None:
            return None
        info = self._infos.get(path, EntryStamp.of(stat)) or self._fresh_info(path, flaws)
        assert info is None or info.key.family == family, (path, family)
        return info

    def _fresh_info(self, path: Path, flaws: list[Flaw]) -> VariantInfo | None:
        with opened(path) as fd:
            if fd is None:
                return None
            stat = os.fstat(fd)
            try:
                info = self._read_info(path, fd)
            except (CorruptEntry, ForeignEntry) as error:
                flaws.append(Flaw(str(path), str(error)))
                self._removal.add(BadFile(path, stat.st_ino, stat.st_size, error))
                return None
            self._infos.put(path, EntryStamp.of(stat), info)
            return info

    def _read_info(self, path: Path, fd: int) -> VariantInfo:
        reader = EntryReader.parts(fd, str(path))
        self._expect_place(reader, path)
        header = reader.header
        size, profile = reader.file_size, reader.profile()
        return VariantInfo(header.key, header.shape.tokens, size, "disk", profile, header.lossless)

    def _flaw(self, path: Path) -> Flaw | None:
        with opened(path) as fd:
            if fd is None:
                return None
            try:
                with self._quarantining(path, fd):
                    reader = EntryReader.parts(fd, str(path))
                    self._expect_place(reader, path)
                    reader.whole(fd).variant()
            except (CorruptEntry, ForeignEntry) as error:
                return Flaw(str(path), str(error))
        return None

    def _expect_place(self, reader: EntryReader, path: Path) -> None:
        if not self._layout.holds(path, reader.header.key):
            raise ForeignEntry(f"{path} holds another variant, {reader.header.key}: files were moved by hand")
        self._expect_form(reader, path)

    def _expect_form(self, reader: EntryReader, path: Path) -> None:
        found = reader.header.shape.form
        expected = self._forms.get(reader.header.key.fingerprint) or self._forms.get("", found)
        if found != expected:
            raise ForeignEntry(f"{path} holds KV of another form, {found} instead of {expected}")

    def _leaving(self, key: VariantKey) -> list[Evictable]:
        """Variants of the same chunk that this one takes the place of."""
        target = self._layout.entry(key)
        others = (other for other in self._layout.entries_in(target.parent) if other.name != str(target))
        return displaced(others, self._order, str(self._layout.entry(key.lead)))

    def _replace(
        self, target: Path, temporary: Path, nbytes: int, usage: FolderUsage, leaving: Sequence[Evictable]
    ) -> None:
        old = size_of(target)
        freed = (old or 0) + sum(one.nbytes for one in leaving)
        if not self._make_room(usage, nbytes - freed, {str(target), *(one.name for one in leaving)}):
            raise StoreError(
                f"a cache file of {nbytes:,} bytes does not fit the disk budget of {self._budget:,} bytes of "
                f"{self._layout.root} beside the pinned entries: raise the budget or unpin some"
            )
        temporary.replace(target)
        if old is not None:
            usage.remove(old)
        usage.add(nbytes)
        self._tally("displaced", sum(self._remove(Path(one.name), usage) for one in leaving))

    def _make_room(self, usage: FolderUsage, more: int, spared: Collection[str] = ()) -> bool:
        """Evict until `more` bytes fit; nothing is evicted when that cannot be."""
        if self._budget is None or usage.nbytes + more <= self._budget:
            return True
        entries = list(self._layout.entries())
        # Counted afresh, since they are at hand: somebody may have emptied the folder.
        usage.entries, usage.nbytes = len(entries), sum(entry.nbytes for entry in entries)
        need = usage.nbytes + more - self._budget
        others = [entry for entry in entries if entry.name not in spared]
        chosen = victims(others, self._order, need, self._budget // _SPARE) if need > 0 else []
        for candidate in chosen or ():
            self._evict(candidate, usage)
        return chosen is not None

    def _evict(self, candidate: Evictable, usage: FolderUsage) -> None:
        if self._remove(Path(candidate.name), usage):
            self._tally("evictions")

    def _remove(self, path: Path, usage: FolderUsage) -> bool:
        nbytes = size_of(path)
        if nbytes is None:
            return False
        path.unlink()
        usage.remove(nbytes)
        remove_if_empty(path.parent)
        return True

    def _touch(self, fd: int) -> None:
        now = time.time_ns()
        with suppress(PermissionError):  # another user's file: only its place in the order of eviction suffers
            os.utime(fd, ns=(now, now))

    def _count(self) -> FolderUsage:
        usage = FolderUsage()
        for candidate in self._layout.entries():
            usage.add(candidate.nbytes)
        return usage

    def _tally(self, name: str, by: int = 1) -> None:
        with self._counting:
            self._counts[name] += by

    @contextmanager
    def _quarantining(self, path: Path, fd: int) -> Iterator[None]:
        """What the block finds bad is moved away, unless it has been replaced since it was opened."""
        try:
            yield
        except (CorruptEntry, ForeignEntry) as error:
            stat = os.fstat(fd)
            self._take_away([BadFile(path, stat.st_ino, stat.st_size, error)])
            raise

    def _take_away(self, found: Sequence[BadFile]) -> None:
        """Save for those that have been replaced meanwhile."""
        with self._ledger.change(recount=True) as usage:  # a file cut short is not of its recorded size
            for bad in found:
                stat = stat_of(bad.path)
                if stat is not None and stat.st_ino == bad.inode:
                    self._quarantine.take(bad.path, bad.reason)
                    remove_if_empty(bad.path.parent)
                    usage.remove(bad.nbytes)
                    self._tally("quarantined")

    @contextmanager
    def _reporting(self, act: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot {act} the cache folder {self._layout.root}: {error}. Free some space, make it writable, "
                "or choose another folder"
            ) from error
