"""A cache folder seen as a whole: what lies in it, and the removal of what its owner no longer needs.

It works on the files beside any number of open stores. Their RAM may keep what is removed here; that is harmless, since
a key is the address of its content.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ragcache.errors import StoreError
from ragcache.store.durable import sweep
from ragcache.store.frame import read_key
from ragcache.store.layout import ENTRY, FolderLayout
from ragcache.store.ledger import FolderUsage, Ledger
from ragcache.types import VariantKey

_AT_ONCE = 256  # files removed under one lock: others want to write meanwhile


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
        self._ledger = Ledger(self._layout.usage, self._count)

    def items(self, engines: Collection[str] | None = None) -> Iterator[Item]:
        """All, or those of engines by the beginnings of their fingerprints (`engine_name`)."""
        with self._reporting("read"):
            for found in self._layout.entries(engines):
                yield Item(Path(found.name), found.nbytes, found.used, found.pinned)

    def family(self, family: str) -> list[Item]:
        """All variants of a chunk behind a System segment."""
        with self._reporting("read"):
            found = [(path, _stat(path)) for path in self._layout.family(family)]
        return [Item(path, told.st_size, told.st_mtime_ns, False) for path, told in found if told is not None]

    def key(self, item: Item) -> VariantKey | None:
        """From its header; None where it is gone or cannot be understood, which `verify` looks into."""
        with self._reporting("read"):
            return read_key(item.path)

    def remove(self, items: Iterable[Item], unused_since_ns: int) -> list[Item]:
        """Those of them that are unpinned and that nobody has written or read since; returns what went."""
        removed: list[Item] = []
        for batch in _batches(items):
            with self._reporting("delete from"), self._ledger.change() as usage:
                for item in batch:
                    if self._remove(item, unused_since_ns, usage):
                        removed.append(item)
        return removed

    def temporaries(self) -> int:
        """Files that are being written, or were when their process died."""
        with self._reporting("read"):
            return sum(1 for _ in self._layout.temporaries())

    def sweep(self) -> int:
        """Remove the temporary files of processes that are dead; returns how many."""
        with self._reporting("delete from"):
            return sweep(self._layout.temporaries())

    def quarantined(self, before_ns: int) -> list[Path]:
        """Bad files that were put aside before that time."""
        with self._reporting("read"):
            return [path for path in self._layout.quarantine.glob(f"*{ENTRY}") if _moved(path) < before_ns]

    def discard(self, quarantined: Iterable[Path]) -> int:
        """Delete bad files with their reasons; returns how many there were."""
        count = 0
        with self._reporting("delete from"):
            for path in quarantined:
                path.unlink(missing_ok=True)
                path.with_suffix(".txt").unlink(missing_ok=True)
                count += 1
        return count

    def _remove(self, item: Item, unused_since_ns: int, usage: FolderUsage) -> bool:
        try:
            stat = item.path.stat()
        except FileNotFoundError:
            return False
        if stat.st_mtime_ns >= unused_since_ns or self._layout.pin(item.path).exists():
            return False
        item.path.unlink()
        usage.remove(stat.st_size)
        with suppress(OSError):  # not empty
            item.path.parent.rmdir()
        return True

    def _count(self) -> FolderUsage:
        usage = FolderUsage()
        for found in self._layout.entries():
            usage.add(found.nbytes)
        return usage

    @contextmanager
    def _reporting(self, act: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot {act} the cache folder {self.root}: {error}. Make it readable and writable"
            ) from error


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, _AT_ONCE)):
        yield batch


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _moved(path: Path) -> int:
    try:
        return path.stat().st_ctime_ns
    except FileNotFoundError:
        return 0
