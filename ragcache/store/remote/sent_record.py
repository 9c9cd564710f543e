"""What the programs of a cache folder have sent to a bucket, or were about to: the newest, and perhaps gone by now."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ragcache.store.remote.folder_file import FolderFile

MOST = 1 << 18  # of some 100 bytes, of all buckets
_TABLE = "CREATE TABLE IF NOT EXISTS sent (id INTEGER PRIMARY KEY, bucket TEXT, digest TEXT, UNIQUE (bucket, digest))"


class SentRecord(FolderFile):
    """Threads and processes may share it. Methods raise StoreError."""

    def __init__(self, root: Path, bucket: str):
        super().__init__(root, _TABLE)
        self._bucket = bucket

    def note(self, digests: Iterable[str]) -> None:
        """Before they are read, to be sent."""
        if not (rows := [(self._bucket, digest) for digest in digests]):
            return
        with self._open() as connection:
            connection.executemany("INSERT OR REPLACE INTO sent (bucket, digest) VALUES (?, ?)", rows)
            connection.execute("DELETE FROM sent WHERE id <= (SELECT max(id) FROM sent) - ?", (MOST,))

    def has(self, digest: str) -> bool:
        with self._open() as connection:
            asked = "SELECT EXISTS (SELECT 1 FROM sent WHERE bucket = ? AND digest = ?)"
            return bool(connection.execute(asked, (self._bucket, digest)).fetchone()[0])
