"""Files of a disk tier that turn out to be bad: they are moved away, so that nobody meets them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ragcache.address import is_of
from ragcache.errors import CorruptEntry, ForeignEntry, NewerEntry
from ragcache.store.disk_budget import TierCounts
from ragcache.store.folder import BadFile, Quarantine
from ragcache.store.frame import key_of, read_fields, seen_of
from ragcache.store.index import Change, FolderIndex, reporting
from ragcache.store.layout import KV, FolderLayout, stat_of
from ragcache.types import VariantKey


class BadFiles:
    """Threads may share it."""

    def __init__(self, layout: FolderLayout, index: FolderIndex, counts: TierCounts) -> None:
        self._layout, self._index, self._counts = layout, index, counts
        self._quarantine = Quarantine(layout.quarantine)
        self._headers: dict[Path, tuple[int, Mapping[str, Any] | None]] = {}  # of what is aside, and of which file

    @contextmanager
    def guarded(self, path: Path, fd: int) -> Iterator[None]:
        """What the block finds bad is moved away, unless it has been replaced since it was opened."""
        with reporting("read", self._layout.root):
            try:
                yield
            except (CorruptEntry, ForeignEntry) as error:
                self.take_away(BadFile.of(path, os.fstat(fd), error))
                raise

    def everywhere(self, chunk: VariantKey) -> list[VariantKey]:
        """Of those that were moved away and tell whose they are: this chunk behind whatever System segment, within its
        border or group.
        """
        return [key for key, _ in self._told().values() if is_of(chunk, key)]

    def seeing(self, chunks: Collection[str]) -> list[VariantKey]:
        """What these had a part in, and what does not tell all."""
        found = [(key, *seen_of(fields)) for key, fields in self._told().values()]
        return [key for key, seen, whole in found if not whole or not seen.isdisjoint(chunks)]

    def discard(self, meant: Callable[[VariantKey], bool]) -> None:
        """For good, whatever name it lies under. Raises OSError."""
        for path, (key, _) in self._told().items():
            if meant(key):
                self._layout.discard(path.stem)

    def _told(self) -> dict[Path, tuple[VariantKey, Mapping[str, Any]]]:
        self._headers = {path: self._header(path) for path in self._layout.quarantine.glob(f"*{KV}")}
        return {path: (key_of(told), told) for path, (_, told) in self._headers.items() if told is not None}

    def _header(self, path: Path) -> tuple[int, Mapping[str, Any] | None]:
        """None also where the disk fails, or the file is another user's: the sound ones are deleted all the same."""
        with suppress(OSError):
            inode = path.stat().st_ino
            known = self._headers.get(path)
            return known if known and known[0] == inode else (inode, read_fields(path))
        return 0, None

    def take_away(self, bad: BadFile) -> None:
        """Save for one that was replaced meanwhile, and for those of a newer version."""

        def take(change: Change) -> bool:
            stat = stat_of(bad.path)
            if stat is None or BadFile.of(bad.path, stat, bad.reason) != bad:
                return False
            self._quarantine.take(bad.path, bad.reason)
            change.remove(bad.path)
            return True

        if not isinstance(bad.reason, NewerEntry):
            self._counts.add("quarantined", self._index.change(take))
