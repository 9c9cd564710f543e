"""Where things lie in a cache folder.

<root>/<fingerprint[:16]>/<family[:2]>/<family>/<digest>.kv    a variant
                                                <digest>.pin   keeps it from being evicted
                                                <digest>.*.tmp being written
<root>/quarantine/<digest>.kv, <digest>.txt                    a bad file and why
<root>/usage                                                   see ledger.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ragcache.store.eviction import Evictable
from ragcache.types import VariantKey

ENTRY = ".kv"
PIN = ".pin"
TEMPORARY = ".tmp"
_QUARANTINE = "quarantine"


@dataclass(frozen=True)
class FolderLayout:
    root: Path

    @property
    def usage(self) -> Path:
        return self.root / "usage"

    @property
    def quarantine(self) -> Path:
        return self.root / _QUARANTINE

    def entry(self, key: VariantKey) -> Path:
        engine = key.fingerprint[:16]
        assert re.fullmatch(r"[\w-]+", engine), f"a fingerprint names a folder: {engine!r}"
        assert engine != _QUARANTINE
        return self.root.joinpath(*_parts(key))

    def holds(self, path: Path, key: VariantKey) -> bool:
        """Whether an entry's path is that of the key that was found in it, which may be any."""
        return path.parts[-4:] == _parts(key)

    def pin(self, entry: Path) -> Path:
        return entry.with_suffix(PIN)

    def family(self, family: str) -> Iterator[Path]:
        """Entries of a family. A fingerprint is part of the family's hash, so one engine's folder at most has it."""
        for engine in self._engines():
            for item in _listing(Path(engine, family[:2], family)):
                if item.name.endswith(ENTRY):
                    yield Path(item.path)

    def entries(self, engines: Collection[str] | None = None) -> Iterator[Evictable]:
        """All entries by path (or those of some engines), as the eviction sees them; those that vanish meanwhile are
        left out.
        """
        for folder in self._families(engines):
            yield from self.entries_in(folder)

    def entries_in(self, folder: str | Path) -> Iterator[Evictable]:
        """Those of one family."""
        items = _listing(folder)
        pins = {item.name.removesuffix(PIN) for item in items if item.name.endswith(PIN)}
        for item in items:
            if not item.name.endswith(ENTRY):
                continue
            try:
                stat = item.stat()
            except FileNotFoundError:
                continue
            pinned = item.name.removesuffix(ENTRY) in pins
            yield Evictable(item.path, stat.st_size, stat.st_mtime_ns, pinned)

    def temporaries(self) -> Iterator[Path]:
        for folder in self._families():
            yield from (Path(item.path) for item in _listing(folder) if item.name.endswith(TEMPORARY))

    def _engines(self) -> Iterator[str]:
        return (item.path for item in _listing(self.root) if item.is_dir() and item.name != _QUARANTINE)

    def _families(self, engines: Collection[str] | None = None) -> Iterator[str]:
        for engine in self._engines():
            if engines is not None and Path(engine).name not in engines:
                continue
            for shard in _listing(engine):
                yield from (family.path for family in _listing(shard.path))


def _parts(key: VariantKey) -> tuple[str, str, str, str]:
    return key.fingerprint[:16], key.family[:2], key.family, key.digest + ENTRY


def _listing(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as items:
            return list(items)
    except (FileNotFoundError, NotADirectoryError):
        return []
