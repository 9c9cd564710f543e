"""What is known of the files on disk, so that a lookup does not read their headers again."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from ragcache.types import VariantInfo

_KEPT = 8192  # entries, and
_NBYTES = 64 << 20  # of their profiles: a chunk of 1,000 tokens behind three others has 24 KB


@dataclass(frozen=True)
class EntryStamp:
    """Changes when a file is replaced, which happens by renaming another into its place, never within it. Its times do
    not count: whichever process uses an entry sets them, and the content stays.
    """

    inode: int
    nbytes: int

    @classmethod
    def of(cls, stat: os.stat_result) -> EntryStamp:
        return cls(stat.st_ino, stat.st_size)


class InfoCache:
    """Thread-safe; forgets the entries that were not asked for in the longest time. Holds the newest in any case."""

    def __init__(self, kept: int = _KEPT, nbytes: int = _NBYTES) -> None:
        """At most so many entries, and bytes of profiles."""
        self._kept, self._limit = kept, nbytes
        self._nbytes = 0
        self._lock = threading.Lock()
        self._infos: OrderedDict[Path, tuple[EntryStamp, VariantInfo]] = OrderedDict()

    def get(self, path: Path, stamp: EntryStamp) -> VariantInfo | None:
        with self._lock:
            known = self._infos.get(path)
            if known is None or known[0] != stamp:
                return None
            self._infos.move_to_end(path)
            return known[1]

    def put(self, path: Path, stamp: EntryStamp, info: VariantInfo) -> None:
        with self._lock:
            if path in self._infos:
                self._nbytes -= self._infos[path][1].profile.nbytes
            self._infos[path] = (stamp, info)
            self._infos.move_to_end(path)
            self._nbytes += info.profile.nbytes
            while len(self._infos) > 1 and (len(self._infos) > self._kept or self._nbytes > self._limit):
                _, (_, forgotten) = self._infos.popitem(last=False)
                self._nbytes -= forgotten.profile.nbytes
