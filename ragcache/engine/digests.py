"""Checksums of model files, remembered: reading gigabytes to name a model takes as long as loading it.

A file counts as unchanged while its place, inode, size and times are; any write moves `st_ctime`, which no program can
set. A file that was changed within the last moments is not remembered, since its times could hide another change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import xxhash

from ragcache.private import private_folder

KEPT = 64  # checksums; the oldest go first
SETTLED_NS = 2_000_000_000  # clocks of file systems tick this coarsely at worst


class Digests:
    """Threads and processes may share the file: whoever writes last leaves a whole one; what got lost is read again."""

    def __init__(self, file: Path | None):
        """None remembers nothing."""
        self._file = file

    def of(self, paths: Sequence[Path]) -> str:
        """Of the names and the bytes. Raises OSError."""
        before = state(paths)
        known = self._known()
        if before in known:
            return known[before]
        digest = _digest(paths)
        settled = all(time.time_ns() - path.stat().st_ctime_ns > SETTLED_NS for path in paths)
        if settled and state(paths) == before:
            self._remember({**known, before: digest})
        return digest

    def _known(self) -> dict[str, str]:
        try:
            found = {} if self._file is None else json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}

    def _remember(self, known: dict[str, str]) -> None:
        """A folder that cannot be written costs a reading each time, no more."""
        if self._file is None:
            return
        kept = dict(list(known.items())[-KEPT:])
        with contextlib.suppress(OSError):
            private_folder(self._file.parent)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=f".{self._file.name}-")
            with os.fdopen(handle, "w") as new:
                json.dump(kept, new)
            Path(name).replace(self._file)


def state(paths: Sequence[Path]) -> str:
    """Another one whenever any of the files is written. Raises OSError."""
    facts = []
    for path in paths:
        found = path.stat()
        times = (found.st_mtime_ns, found.st_ctime_ns)
        facts.append([str(path.absolute()), found.st_dev, found.st_ino, found.st_size, *times])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _digest(paths: Sequence[Path]) -> str:
    hasher = xxhash.xxh3_128()
    for path in paths:
        hasher.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 24):
                hasher.update(block)
    return hasher.hexdigest()
