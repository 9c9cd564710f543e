"""Files of a disk tier that turn out to be bad: they are moved away, so that nobody meets them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragcache.errors import CorruptEntry, ForeignEntry, NewerEntry
from ragcache.store.disk_budget import TierCounts
from ragcache.store.folder import BadFile, Quarantine
from ragcache.store.frame import key_of, read_fields
from ragcache.store.index import Change, FolderIndex, reporting
from ragcache.store.layout import KV, FolderLayout, stat_of
from ragcache.types import VariantKey


class BadFiles:
    """Threads may share it."""

    def __init__(self, layout: FolderLayout, index: FolderIndex, counts: TierCounts) -> None:
        self._layout, self._index, self._counts = layout, index, counts
        self._quarantine = Quarantine(layout.quarantine)

    @contextmanager
    def guarded(self, path: Path, fd: int) -> Iterator[None]:
        """What the block finds bad is moved away, unless it has been replaced since it was opened."""
        with reporting("read", self._layout.root):
            try:
                yield
            except (CorruptEntry, ForeignEntry) as error:
                self.take_away(BadFile.of(path, os.fstat(fd), error))
                raise

    def aside(self, meant: Callable[[VariantKey, Mapping[str, Any]], bool]) -> list[VariantKey]:
        """Of those that were moved away and tell whose they are: what is meant, by its key and its header's fields.
        Raises OSError.
        """
        headers = map(read_fields, self._layout.quarantine.glob(f"*{KV}"))
        told = ((key_of(fields), fields) for fields in headers if fields is not None)
        return [key for key, fields in told if meant(key, fields)]

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
