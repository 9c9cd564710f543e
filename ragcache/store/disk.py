"""The disk tier: one file per variant, shared by any number of processes.

Readers take no lock: a file is renamed into place whole, and one that vanishes while it is looked for is a miss. What
changes the folder does so inside a change of its index.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from ragcache.address import behind_another_system
from ragcache.errors import CorruptEntry, ForeignEntry, StoreError
from ragcache.host import private_folder
from ragcache.store.background import Background
from ragcache.store.bad_files import BadFiles
from ragcache.store.base import ELSEWHERE, OpenEntry, Tier
from ragcache.store.budgets import Leaving, share_of
from ragcache.store.codec import open_codec
from ragcache.store.defaults import ORDER
from ragcache.store.disk_budget import DiskBudget, TierCounts
from ragcache.store.disk_room import DiskRoom, Floor
from ragcache.store.entry import EntryReader, FileEntry, KnownForms, body_nbytes, pack
from ragcache.store.eviction import ORDERS, VARIANTS, EvictionOrder
from ragcache.store.findings import DISK, Flaw, TierStats
from ragcache.store.folder import BadFile
from ragcache.store.format import Header
from ragcache.store.frame import InfoCache
from ragcache.store.index import Change, Contents, FolderIndex, Row, reporting
from ragcache.store.layout import KV, FolderLayout, opened, stat_of, sweep, sync_folder, written_beside
from ragcache.store.pins import check_pin
from ragcache.store.reuse import ReuseRecord
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey

_TRIES = 5


class DiskTier(Tier):
    name = DISK

    def __init__(
        self,
        root: Path,
        budget: int | None,
        codec: str,
        order: EvictionOrder = ORDERS[ORDER],
        heads: slice | None = None,
        *,
        floor: Floor = 0,
        evicts: bool = True,
        variants: int = VARIANTS,
    ) -> None:
        """Opens or creates the folder. `codec` is for what is put; each file says what it is read with. `heads`: those
        K/V heads that `get` brings; such a tier takes nothing in. `floor` and `evicts`: see DiskRoom.
        """
        root, self.most_variants = root.resolve(), variants  # a program may change its working directory
        self._layout = FolderLayout(root)
        self._codec, self._heads = open_codec(codec), heads
        self.reuse = ReuseRecord()
        self._forms, self._infos = KnownForms(), InfoCache()
        self._counts, self._background = TierCounts(), Background()
        self._index = FolderIndex(self._layout, self._background)
        self._bad = BadFiles(self._layout, self._index, self._counts)
        room = DiskRoom(root, budget, floor, evicts, order, variants)
        self._room = DiskBudget(room, self._layout, self._index, self._counts, self.reuse)
        with reporting("open", root):
            private_folder(root)
            sweep(self._layout.temporaries())
            self._index.open()
            self._room.evict()  # it may be smaller than last time

    @property
    def root(self) -> Path:
        return self._layout.root

    @property
    def budget(self) -> int | None:
        return self._room.budget

    def leaving(self, budget: int | None) -> Leaving:
        return self._room.leaving(budget)

    def fit(self, budget: int | None) -> Leaving:
        return self._room.fit(budget)

    def has_room(self, nbytes: int) -> bool:
        return self._room.has_room(nbytes)

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        self._forms.know(form, fingerprint)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        with reporting("read", self._layout.root):
            return self._told(self._index.family(family), flaws)

    def elsewhere(self, key: VariantKey, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        with reporting("read", self._layout.root):
            told = self._told(self._index.elsewhere(key, ELSEWHERE), flaws)
        return [info for info in told if behind_another_system(info.key, key)]  # by the files, which are the truth

    def everywhere(self, key: VariantKey) -> list[VariantKey]:
        with reporting("read", self._layout.root):
            return list(dict.fromkeys([*self._index.everywhere(key), *self._bad.everywhere(key)]))

    def _told(self, rows: Iterable[Row], flaws: list[Flaw] | None) -> list[VariantInfo]:
        met: list[Flaw] = [] if flaws is None else flaws
        infos = (
            self._infos.get(digest, file) or self._fresh_info(self._layout.place(engine, family, digest), file, met)
            for engine, family, digest, file in rows
        )
        return [info for info in infos if info is not None]

    def open(self, key: VariantKey) -> OpenEntry | None:
        if (entry := self.look(key)) is not None:
            self._index.use(key.digest)
            self.reuse.use(key.digest, entry.nbytes)
            self._counts.add("hits")
            return entry
        self._counts.add("misses")
        self.reuse.miss(key.digest)
        with reporting("read", self._layout.root):
            if self._index.has(key.digest):
                self._background.add(self._forget, self._layout.entry(key))
        return None

    def look(self, key: VariantKey) -> OpenEntry | None:
        """Open it as no use of it."""
        path = self._layout.entry(key)
        with ExitStack() as left:
            with reporting("read", self._layout.root):
                if (fd := left.enter_context(opened(path))) is None:
                    return None
            with (guard := partial(self._bad.guarded, path, fd))():
                reader = EntryReader.parts(fd, str(path), self._heads)
                reader.expect(key)
                self._forms.expect(reader.header, str(path))
            entry = FileEntry(reader, fd, self.name, guard, left.pop_all().close)
        self._infos.compare(key.digest, reader.file_size, reader.header.lineage.lossless)
        return entry

    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        assert self._heads is None, "some heads of a variant are no variant"
        held = self._come(variant.key)
        if not (held or wanted) and self._room.declines(variant.key, body_nbytes(variant, self._codec)):
            return False
        return self._take_in(*pack(variant, self._codec), held, judges=not wanted)

    def take_in(self, header: Header, parts: Sequence[memoryview]) -> bool:
        """Keep a file as it was written, elsewhere too. Raises and says as `put`."""
        return self._take_in(header, parts, self._come(header.key), judges=True)

    def _come(self, key: VariantKey) -> bool:
        """What is put was asked for once, if it was not before -> whether it is there."""
        with reporting("read", self._layout.root):
            held = self._index.has(key.digest)
        self.reuse.fading.come(key.digest, held=held)
        return held

    def _take_in(self, header: Header, parts: Sequence[memoryview], held: bool, *, judges: bool) -> bool:
        target = self._layout.entry(header.key)
        contents = Contents(header.key, header.codec, header.lineage, sum(map(len, parts)))
        with (
            reporting("write to", self._layout.root),
            written_beside(self._layout.writing / target.name, parts) as written,
        ):
            announce, told = partial(self._room.announce, contents=contents, temporary=written.name), list[bool]()
            for _ in range(_TRIES):  # the index may be lost, or the entry be deleted or evicted, before it is there
                # A full disk keeps its reserve for what frees some.
                self._index.change(lambda change: told.append(announce(change, judges=judges)), reserve=False)
                if not told[-1]:  # by the change that was committed, if it was tried twice
                    return False
                if self._index.change(partial(Change.bring, announce=announce, temporary=written, target=target)):
                    sync_folder(target.parent)
                    self.reuse.put(header.key.digest, contents.nbytes, held=held)
                    return True
        raise StoreError(f"{target} was deleted again and again before it was there")

    def era(self) -> int:
        with reporting("read", self._layout.root):
            return self._index.era()

    def end_era(self) -> None:
        with reporting("delete from", self._layout.root):
            self._index.change(Change.end_era)

    def delete(self, key: VariantKey) -> bool:
        def drop(change: Change) -> bool:
            there = change.delete(self._layout.entry(key))
            self._bad.discard(lambda bad: bad == key)
            return there

        self.reuse.forget(key.digest)
        with reporting("delete from", self._layout.root):
            return self._index.change(drop)

    def seeing(self, chunks: Collection[str]) -> list[VariantKey]:
        with reporting("read", self._layout.root):
            return list(dict.fromkeys([*self._index.seeing(chunks), *self._bad.seeing(chunks)]))

    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        check_pin(owner, seconds)
        expires = None if seconds is None else time.time_ns() + int(seconds * 1e9)
        with reporting("pin in", self._layout.root):
            if pinned:
                self._index.change(lambda change: change.pin(key.digest, owner, expires))
            else:
                self._index.change(lambda change: change.unpin(key.digest, owner))
                self._room.evict()

    def offer(self, variant: Variant) -> bool:
        with suppress(StoreError):
            return self.put(variant)
        return False

    def use(self, key: VariantKey) -> None:
        self._index.use(key.digest)
        self.reuse.use(key.digest)

    def renew(self, key: VariantKey) -> None:
        self._index.use(key.digest, counts=False)

    def trim(self, fingerprint: str, share: float, more: int = 0) -> None:
        """No eviction, which tells that the budget is too small: what is trimmed has a share of its own."""
        most = share_of(self._room.budget, share) - more
        with reporting("delete from", self._layout.root):
            self._index.change(lambda change: change.trim(fingerprint, most))
            if not share:  # all go
                self._bad.discard(lambda key: key.fingerprint.endswith(fingerprint))

    def holds(self, key: VariantKey) -> bool:
        with reporting("read", self._layout.root):
            return stat_of(self._layout.entry(key)) is not None

    def stats(self) -> Sequence[TierStats]:
        self._background.settle()
        with reporting("read", self._layout.root):
            return [TierStats(self.name, *self._index.usage(), self._room.budget, *self._counts.told())]

    def verify(self) -> list[Flaw]:
        self._background.settle()
        with reporting("read", self._layout.root):
            self._index.renew()  # so that no file is left out
            files = [Path(found.path) for found in self._layout.files() if found.path.endswith(KV)]
            return [flaw for path in files if (flaw := self._flaw(path)) is not None]

    def check_integrity(self) -> None:
        self._background.settle()
        usage, rows, files = self._index.audit()
        assert (rows, usage) == (files, (len(rows), sum(rows.values()))), (rows.items() ^ files.items(), usage)
        loose = self._index.change(lambda change: sum(one.nbytes for one in change.loose()))
        assert self.budget is None or usage[1] <= max(self.budget, usage[1] - loose), (usage, self.budget)  # pins stay

    def _fresh_info(self, path: Path, file: int, flaws: list[Flaw]) -> VariantInfo | None:
        with opened(path) as fd:
            if fd is None:
                self._background.add(self._forget, path)
                return None
            try:
                info = self._reader(fd, path).info(self.name, self.level)
            except (CorruptEntry, ForeignEntry) as error:
                flaws.append(Flaw(str(path), str(error)))
                self._background.add(self._bad.take_away, BadFile.of(path, os.fstat(fd), error))
                return None
            self._infos.put(path.stem, file, info)
            return info

    def _flaw(self, path: Path) -> Flaw | None:
        with opened(path) as fd:
            if fd is None:
                return None
            try:
                with self._bad.guarded(path, fd):
                    self._reader(fd, path).whole(fd).variant()
            except (CorruptEntry, ForeignEntry) as error:
                return Flaw(str(path), str(error))
        return None

    def _reader(self, fd: int, path: Path) -> EntryReader:
        """Of a file that lies where it belongs."""
        reader = EntryReader.parts(fd, str(path))
        if not self._layout.holds(path, reader.header.key):
            raise ForeignEntry(f"{path} holds another variant, {reader.header.key}: files were moved by hand")
        self._forms.expect(reader.header, str(path))
        return reader

    def close(self) -> None:
        self._index.close()

    def _forget(self, path: Path) -> None:  # unless it is there again
        self._index.change(lambda change: change.forget_missing(path))
