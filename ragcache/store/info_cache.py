"""What was read of cache files, so that a lookup does not read their headers again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ragcache.types import VariantInfo

_KEPT = 8192  # entries, and
_NBYTES = 64 << 20  # of their profiles: a chunk of 1,000 tokens behind three others has 24 KB


class InfoCache:
    """Thread-safe; forgets the entries that were not asked for in the longest time. Holds the newest in any case."""

    def __init__(self, kept: int = _KEPT, nbytes: int = _NBYTES) -> None:
        """At most so many entries, and bytes of profiles."""
        self._kept, self._limit = kept, nbytes
        self._nbytes = 0
        self._lock = threading.Lock()
        self._infos: OrderedDict[str, tuple[int, VariantInfo]] = OrderedDict()

    def get(self, digest: str, file: int) -> VariantInfo | None:
        """Of this file, which the index numbers, at the address."""
        with self._lock:
            known = self._infos.get(digest)
            if known is None or known[0] != file:
                return None
            self._infos.move_to_end(digest)
            return known[1]

    def compare(self, digest: str, nbytes: int, lossless: bool) -> None:
        """With the file that lies there: who is killed may put another one there that the index does not number yet."""
        with self._lock:
            known = self._infos.get(digest)
            if known is not None and (known[1].nbytes, known[1].lossless) != (nbytes, lossless):
                self._nbytes -= self._infos.pop(digest)[1].profile.nbytes

    def put(self, digest: str, file: int, info: VariantInfo) -> None:
        with self._lock:
            if digest in self._infos:
                self._nbytes -= self._infos[digest][1].profile.nbytes
            self._infos[digest] = (file, info)
            self._infos.move_to_end(digest)
            self._nbytes += info.profile.nbytes
            while len(self._infos) > 1 and (len(self._infos) > self._kept or self._nbytes > self._limit):
                _, (_, forgotten) = self._infos.popitem(last=False)
                self._nbytes -= forgotten.profile.nbytes
