"""A cache folder seen as a whole: what lies in it, and the removal of what its owner no longer needs.

It works on the files beside any number of open stores. Their RAM may keep what is removed here; that is harmless, since
a key is the address of its content. Bad files go into quarantine, each with its reason beside it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from ragcache.errors import StoreError
from ragcache.host import private_file, private_folder
from ragcache.store.background import Background
from ragcache.store.frame import key_of, read_fields
from ragcache.store.index import Change, FolderIndex, reporting
from ragcache.store.index_parts import seen, there
from ragcache.store.layout import KV, FolderLayout, stat_of, sweep
from ragcache.types import VariantKey

_AT_ONCE = 256  # files removed in one change: others want to write meanwhile
_log = logging.getLogger(__name__)
_KEPT = 32
_KEPT_NBYTES = 256 << 20  # beside the newest, which may be larger


@dataclass(frozen=True)
class Item:
    """A cached variant, told from its place alone."""

    path: Path
    nbytes: int
    used_ns: int  # when it was last written or read
    pinned: bool

    @property
    def engine(self) -> str:
        """The beginning of its engine's fingerprint, as `engine_name` gives it."""
        return self.path.parts[-4]

    @property
    def family(self) -> str:
        return self.path.parent.name

    @property
    def address(self) -> str:
        """The digest of its key."""
        return self.path.stem


def engine_name(fingerprint: str) -> str:
    return fingerprint[:16]


class CacheFolder:
    """Methods raise StoreError when the folder cannot be used. One that is not there is empty, and is not made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._layout = FolderLayout(root)

    def items(self, engines: Collection[str] | None = None) -> Iterator[Item]:
        """All, or those of engines by the beginnings of their fingerprints (`engine_name`)."""
        return self._seen(engines)

    def family(self, family: str) -> list[Item]:
        """All variants of a chunk behind a System segment."""
        return list(self._seen(family=family))

    def with_entries(self, engine: str, families: Collection[str]) -> set[str]:
        """Those of an engine's families (`engine_name`) that have any variant. No others are looked at."""
        with reporting("read", self.root):
            return there(self._layout, engine, families)

    def key(self, item: Item) -> VariantKey | None:
        """From its header; None where it is gone, or cannot be read or understood, which `verify` looks into."""
        with suppress(OSError):  # another user's, or the disk fails
            fields = read_fields(item.path)
            return None if fields is None else key_of(fields)
        return None

    def remove(self, items: Iterable[Item], unused_since_ns: int) -> list[Item]:
        """Those of them that are unpinned and that nobody has written or read since; returns what went."""
        removed: list[Item] = []
        index: FolderIndex | None = None
        for batch in _batches(items):
            with reporting("delete from", self.root):
                index = index or FolderIndex(self._layout, Background())
                removed += index.change(partial(_remove, items=batch, unused_since_ns=unused_since_ns))
        return removed

    def temporaries(self) -> int:
        """Files that are being written, or were when their process died."""
        with reporting("read", self.root):
            return sum(1 for _ in self._layout.temporaries())

    def sweep(self) -> int:
        """Remove the temporary files of processes that are dead; returns how many."""
        with reporting("delete from", self.root):
            return sweep(self._layout.temporaries())

    def quarantined(self, before_ns: int) -> list[Path]:
        """Bad files that were put aside before that time."""
        with reporting("read", self.root):
            return [path for path in self._layout.quarantine.glob(f"*{KV}") if moved_ns(path) < before_ns]

    def discard(self, quarantined: Iterable[Path]) -> int:
        """Delete bad files with their reasons; returns how many there were."""
        count = 0
        with reporting("delete from", self.root):
            for path in quarantined:
                path.unlink(missing_ok=True)
                path.with_suffix(".txt").unlink(missing_ok=True)
                count += 1
        return count

    def _seen(self, engines: Collection[str] | None = None, family: str | None = None) -> Iterator[Item]:
        with reporting("read", self.root):
            found = seen(self._layout, engines, family)
        return (Item(Path(one.name), one.nbytes, one.used, one.pinned) for one in found)


def _remove(change: Change, items: Iterable[Item], unused_since_ns: int) -> list[Item]:
    change.end_era()  # of a text that is gone, a keep may be under way
    gone = []
    for item in items:
        known = change.entry(item.address)
        if known is None or known.pinned or known.used >= unused_since_ns:
            continue
        if change.remove(item.path):
            gone.append(item)
    return gone


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, _AT_ONCE)):
        yield batch


class Quarantine:
    """Keeps the newest few files, and few bytes: enough to look into, without filling the disk that the budget was set
    for.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, path: Path, reason: StoreError) -> None:
        """Move `path` here. The caller holds the lock of the store."""
        private_folder(self._folder)
        path.replace(self._folder / path.name)
        # A full disk has no room for the reason; the log has it.
        with suppress(OSError):
            told = (self._folder / path.name).with_suffix(".txt")
            private_file(told)
            told.write_text(f"{reason}\n")
        _log.warning("cache entry moved to %s: %s", self._folder, reason)
        self._forget_old()

    def _forget_old(self) -> None:
        nbytes = 0
        for place, path in enumerate(sorted(self._folder.glob("*.kv"), key=moved_ns, reverse=True)):
            nbytes += 0 if (found := stat_of(path)) is None else found.st_size
            if place and (place >= _KEPT or nbytes > _KEPT_NBYTES):
                path.unlink(missing_ok=True)
                path.with_suffix(".txt").unlink(missing_ok=True)


def moved_ns(path: Path) -> int:
    """When it came here. Others may discard it at any time."""
    found = stat_of(path)
    return 0 if found is None else found.st_ctime_ns


@dataclass(frozen=True)
class BadFile:
    path: Path
    inode: int
    written_ns: int  # an inode is given again once its file is gone
    reason: StoreError = field(compare=False)

    @classmethod
    def of(cls, path: Path, found: os.stat_result, reason: StoreError) -> BadFile:
        return cls(path, found.st_ino, found.st_mtime_ns, reason)
