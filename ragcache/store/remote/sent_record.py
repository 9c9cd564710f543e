"""What the programs of a cache folder have sent to a bucket, or were about to: the newest, and perhaps gone by now."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ragcache.errors import StoreError
from ragcache.store.remote.folder_file import FolderFile
from ragcache.types import VariantKey

MOST = 1 << 18  # of some 100 bytes, of all buckets
_TABLE = "CREATE TABLE IF NOT EXISTS sent (id INTEGER PRIMARY KEY, bucket TEXT, digest TEXT, UNIQUE (bucket, digest))"
_NOTE = """
INSERT INTO sent (bucket, digest) VALUES (?, ?)
ON CONFLICT DO UPDATE SET id = (SELECT max(id) + 1 FROM sent) WHERE id < (SELECT max(id) FROM sent) - ?
"""  # what was noted lately stays, or one that is tried again and again would push out all others


class SentRecord(FolderFile):
    """Threads and processes may share it."""

    def __init__(self, root: Path, bucket: str):
        super().__init__(root, _TABLE)
        self._bucket = bucket

    def note(self, digests: Iterable[str]) -> None:
        """Before they are read, to be sent. Raises StoreError."""
        if not (rows := [(self._bucket, digest) for digest in digests]):
            return
        with self._open() as connection:
            connection.executemany(_NOTE, [(*row, MOST // 2) for row in rows])
            connection.execute("DELETE FROM sent WHERE id <= (SELECT max(id) FROM sent) - ?", (MOST,))

    def of(self, keys: Iterable[VariantKey]) -> set[VariantKey]:
        """Those of these that it has; all of them where that cannot be told."""
        asked, every = "SELECT 1 FROM sent WHERE bucket = ? AND digest = ?", set(keys)
        try:
            with self._open() as connection:
                return {one for one in every if connection.execute(asked, (self._bucket, one.digest)).fetchone()}
        except StoreError:
            return every
