"""Where things lie in a cache folder.

<root>/<fingerprint[:16]>/<family[:2]>/<family>/<digest>.kv    a variant
<root>/writing/<digest>.*.tmp                                  being written
<root>/quarantine/<digest>.kv, <digest>.txt                    a bad file and why
<root>/index.sqlite, index.mark, index.reserve                 see index_file.py and index_making.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ragcache.types import VariantKey

KV = ".kv"
TEMPORARY = ".tmp"
_ENTRY = re.compile(r"[\w-]+\.kv", re.ASCII)
_APART = ("quarantine", "writing")
# Of versions before the index: a file beside an entry kept it from being evicted, and one told how much there was.
OLD_PIN, OLD_USAGE = ".pin", "usage"


@dataclass(frozen=True)
class FoundFile:
    """In an engine's folder: an entry or, from before there was an index, what stood beside one."""

    path: str
    stat: os.stat_result

    @property
    def place(self) -> tuple[str, str, str]:
        """Engine, family and digest."""
        engine, _, family, name = self.path.rsplit(os.sep, 4)[1:]
        return engine, family, name.partition(".")[0]

    @property
    def is_entry(self) -> bool:
        """By its name and place: a copy under another name is none."""
        _, shard, family, name = self.path.rsplit(os.sep, 4)[1:]
        return shard == family[:2] and _ENTRY.fullmatch(name) is not None


@dataclass(frozen=True)
class FolderLayout:
    root: Path

    @property
    def index(self) -> Path:
        return self.root / "index.sqlite"

    @property
    def mark(self) -> Path:
        return self.root / "index.mark"

    @property
    def reserve(self) -> Path:
        """Room for the index on a full disk."""
        return self.root / "index.reserve"

    @property
    def quarantine(self) -> Path:
        return self.root / _APART[0]

    @property
    def writing(self) -> Path:
        return self.root / _APART[1]

    def entry(self, key: VariantKey) -> Path:
        engine = key.fingerprint[:16]
        assert re.fullmatch(r"[\w-]+", engine), f"a fingerprint names a folder: {engine!r}"
        assert engine not in _APART
        return self.place(engine, key.family, key.digest)

    def place(self, engine: str, family: str, digest: str) -> Path:
        return Path(self.root, engine, family[:2], family, digest + KV)

    def temporary(self, name: str) -> Path:
        """Of a name that an index tells, which may be any: nothing else is meant by it."""
        return self.writing / Path(name).name

    def holds(self, path: Path, key: VariantKey) -> bool:
        """Whether an entry's path is that of the key that was found in it, which may be any."""
        return path.parts[-4:] == (key.fingerprint[:16], key.family[:2], key.family, key.digest + KV)

    def files(self, engines: Collection[str] | None = None, family: str | None = None) -> Iterator[FoundFile]:
        """All in engines' folders, or in those of some, or of one family; those that vanish meanwhile are left out."""
        for engine in _listing(self.root):
            if engine.name in _APART or not (engines is None or engine.name in engines):
                continue
            for shard in _listing(engine.path):
                for folder in _listing(shard.path) if family is None or family[:2] == shard.name else ():
                    if family in (None, folder.name):
                        yield from _files(folder.path)

    def temporaries(self) -> Iterator[Path]:
        return (Path(item.path) for item in _listing(self.writing) if item.name.endswith(TEMPORARY))


def _files(folder: str) -> Iterator[FoundFile]:
    for item in _listing(folder):
        with suppress(OSError):  # it vanished, or is a link to nowhere
            if item.is_file():
                yield FoundFile(item.path, item.stat())


def _listing(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as items:
            return [item for item in items if item.name.isascii()]  # no other name is of ours
    except (FileNotFoundError, NotADirectoryError):
        return []
