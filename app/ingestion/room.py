"""Room on the disk: what an ingest will need, told before it starts, and its end before there is none left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from app.errors import IngestError
from app.ingestion.survey import Pending
from app.settings import GIB, Settings, free_bytes
from retriever.shared_property import shared_property

# Kept free for everybody else on the machine, and for the catalog, which is written last.
RESERVE = 256 << 20
TEXT = {".txt", ".md", ".markdown", ".csv", ".tsv", ".json", ".jsonl", ".py", ".rst", ".log"}
# Bytes of a file for each token, about: of plain texts, and of formats with pictures, fonts and markup in them.
PER_TOKEN, PER_TOKEN_OTHERS = 4, 30
CHARACTERS = 3  # of a text for each token at least, in most languages
VARIANTS = 2  # a long document has a lead variant of each chunk too


class Room:
    """Of one ingest, with or without KV."""

    def __init__(self, settings: Settings, kv: bool):
        self._settings = settings
        self._kv = kv and settings.disk_bytes > 0

    @shared_property
    def _per_token(self) -> float:
        """Bytes of KV. Asked for when there is a file to read: it imports torch."""
        if not self._kv:
            return 0.0
        from app.ingestion.estimate import bytes_per_token

        return bytes_per_token(self._settings)

    def warning(self, files: Iterable[Pending]) -> str | None:
        """By the sizes of the files alone, so roughly."""
        tokens = sum(file.size / _per_token(file.source) for file in files)
        needed = int(tokens * self._per_token * VARIANTS)
        free, budget = free_bytes(self._settings.kv_folder), self._settings.disk_bytes
        if needed > budget:
            return (
                f"these files may come to {needed / GIB:,.1f} GiB of KV, and RAGCACHE_DISK_BYTES keeps "
                f"{budget / GIB:,.1f} GiB: older KV makes room for new. `--dry-run` tells more, `--no-kv` leaves it out"
            )
        if needed + RESERVE > free:
            return (
                f"these files may come to {needed / GIB:,.1f} GiB of KV, and the disk of {self._settings.cache_dir} "
                f"has {free / GIB:,.1f} GiB free: the ingest will stop before it is full. `--dry-run` tells more"
            )
        return None

    def check(self, characters: int) -> None:
        """Before a document of so many is written. Raises IngestError where that would fill a disk."""
        kv = int(characters / CHARACTERS * self._per_token * VARIANTS)
        self._check(self._settings.cache_dir, min(kv, self._settings.disk_bytes) if kv else 0)
        if self._settings.database_url is None:
            self._check(self._settings.data_dir, 4 * characters)

    def _check(self, folder: Path, needed: int) -> None:
        free = free_bytes(folder)
        if needed + RESERVE > free:
            raise IngestError(
                f"the disk of {folder} is nearly full: {free / GIB:,.2f} GiB are free, and the next document may need "
                f"{needed / GIB:,.2f} beside a reserve of {RESERVE / GIB:,.2f}. Free some space and run the "
                "same command again: what is in stays, and it goes on there"
            )


def _per_token(source: str) -> int:
    return PER_TOKEN if Path(source).suffix.lower() in TEXT else PER_TOKEN_OTHERS
