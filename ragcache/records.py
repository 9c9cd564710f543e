"""What was found out about a model folder, kept beside the cache so that the next start need not find it out again.

A record counts for the very files that it was made of, and for the versions of the libraries that made it. It is a
convenience: one that cannot be read or written is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

from ragcache.host import private_folder

FOLDER = "records"
FORMAT = 3  # raised when what is recorded changes meaning
LIBRARIES = ("ragcache-kv", "torch", "transformers", "tokenizers")
MOST = 64  # records of a kind that are kept; older ones go
Basis: TypeAlias = list[Any]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Records:
    """Of all model folders that one cache folder serves. Any number of processes may use it."""

    root: Path

    def read(self, kind: str, folder: Path, **facts: str) -> dict[str, Any] | None:
        """What `write` was given for the same folder and facts, if nothing that counts has changed since."""
        try:
            kept = json.loads(self._path(kind, folder, facts).read_text(encoding="utf-8"))
            values: dict[str, Any] = kept["values"]
            return values if isinstance(values, dict) and kept["basis"] == _basis(folder) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def basis(self, folder: Path) -> Basis | None:
        """What the folder's files are. Asked for before anything is read of which a record is to be made."""
        try:
            return _basis(folder)
        except OSError:
            return None

    def write(self, kind: str, folder: Path, values: Mapping[str, Any], basis: Basis | None, **facts: str) -> None:
        """Found out of the files of that basis."""
        if basis is None:
            return
        try:
            private_folder(self.root)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self.root, prefix=f"{kind}-", suffix=".tmp", delete=False
            ) as file:
                json.dump({"basis": basis, "values": values}, file)
            Path(file.name).replace(self._path(kind, folder, facts))
            self._bound(kind)
        except OSError as error:
            log.debug("nothing of %s is remembered for the next start: %s", folder, error)

    def _path(self, kind: str, folder: Path, facts: Mapping[str, str]) -> Path:
        named = json.dumps([kind, os.path.realpath(folder), facts], sort_keys=True)
        return self.root / f"{kind}-{hashlib.sha256(named.encode('utf-8', 'replace')).hexdigest()[:24]}.json"

    def _bound(self, kind: str) -> None:
        """Of each kind by itself: one that is written often, or by many machines, drives out no other."""
        # A temporary file that a killed process has left counts as a record, and goes when it is old. Those of earlier
        # versions name no kind.
        paths = (path for path in self.root.iterdir() if path.name.rpartition("-")[0] in ("", kind))
        for path in sorted(paths, key=_changed, reverse=True)[MOST:]:
            with suppress(FileNotFoundError):
                path.unlink()


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _basis(folder: Path) -> Basis:
    """Sizes, times and inodes of the folder's files, as JSON gives them back. Raises OSError."""
    found = []
    for path in sorted(folder.iterdir()):
        stat = path.stat()
        found.append([path.name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino])
    return [FORMAT, [_version(name) for name in LIBRARIES], found]


@cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
