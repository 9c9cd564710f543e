"""Files of an index by generation: a new one is written beside the old, and a manifest of a few bytes swaps them.

    vectors.json          which file counts, its size and checksum, and how far it follows the source
    vectors.7.faiss       the file of generation 7

Readers take no lock. A data file is never written again under its name, so what a reader has opened stays whole; one
that is removed between the manifest and the data file reads the newer manifest. Writers take a file lock.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import xxhash
from filelock import FileLock, Timeout

from retriever.source import Position

SCHEMA = 1
TEMPORARY = ".new"
FILE, FOLDER = 0o600, 0o700  # for their owner alone, whatever the umask: an index tells what is in documents
_BLOCK = 1 << 22
_TRIES = 5  # a writer would have to finish five times while a reader opens one file

Loaded = TypeVar("Loaded")
log = logging.getLogger(__name__)


class Distrusted(Exception):
    """A file that is torn, damaged or of something else; the index is made again from its source."""


@dataclass(frozen=True)
class Manifest:
    schema: int
    generation: int
    file: str
    size: int
    checksum: str
    identity: str  # of what is in the file: embedder, dimension, settings
    high: int
    retired: int
    live: int
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def position(self) -> Position:
        return Position(self.high, self.retired, self.live)

    def covers(self, other: Position) -> bool:
        return self.high >= other.high and self.retired >= other.retired


class Generations:
    def __init__(self, folder: Path, name: str, suffix: str) -> None:
        """Of the index `name` in `folder`; several indexes may share one. Nothing is created before the first save."""
        self.folder = folder
        self._name = name
        self._suffix = suffix
        self._manifest = folder / f"{name}.json"

    def __str__(self) -> str:
        return f" in {self._manifest}"

    def exists(self) -> bool:
        """Whether there is a file, trusted or not."""
        return self._manifest.exists()

    def mark(self) -> bytes | None:
        """Of the current generation: no other one has it. None where there is none to be seen."""
        try:
            return self._manifest.read_bytes()
        except OSError:
            return None

    def position(self, identity: str) -> Position | None:
        """How far the current file follows its source; None where there is none to be trusted."""
        saved = self._saved(identity)
        return None if saved is None else saved.position

    def load(self, identity: str, read: Callable[[Path, Manifest], Loaded]) -> Loaded | None:
        """What `read` makes of the current file once its checksum holds; None when there is none to be trusted.

        `read` raises Distrusted for what a checksum cannot know.
        """
        for _ in range(_TRIES):
            try:
                manifest = self._read_manifest(identity)
                if manifest is None:
                    return None
                path = self.folder / manifest.file
                _verify(path, manifest)
                return read(path, manifest)
            except FileNotFoundError:
                continue  # swept by a writer just now, or gone for good
            except (Distrusted, OSError) as error:
                log.warning("%s is not trusted and will be made again: %s", self._manifest, error)
                return None
        log.warning("%s names a file that is not there; the index will be made again", self._manifest)
        return None

    def publish(
        self,
        identity: str,
        position: Position,
        details: Mapping[str, Any],
        write: Callable[[Path], None],
        *,
        over: bytes | None = None,
        wait: float = -1,
    ) -> bool:
        """Whether a new generation was written. None is where another process saved at least as much.

        `over` is the `mark` of one that must not stand, whatever it says of itself: for an index that was made again
        because of it. Another writer is waited for `wait` seconds, for ever when negative. Raises OSError.
        """
        try:
            with self._writing(wait):
                current = self._saved(identity)
                if current is not None and current.covers(position) and (over is None or over != self.mark()):
                    return False
                self._swap(identity, position, details, write)
                return True
        except Timeout:
            return False

    def discard(self, identity: str) -> bool:
        """Delete all files where the current one is not to be trusted; whether it was not. Raises OSError."""
        with self._writing(wait=-1):
            if self._saved(identity) is not None:
                return False
            self._manifest.unlink(missing_ok=True)  # first, so that it never names a file that is not there
            self._sweep(None)
            return True

    def sweep(self) -> None:
        """Delete what a writer that was killed has left: whatever the manifest does not name. Raises OSError."""
        if self._strays():
            with self._writing(wait=-1):
                for path in self._strays():
                    path.unlink(missing_ok=True)

    def _strays(self) -> list[Path]:
        numbered = self._numbered()  # before the manifest: what is written behind this look is none of them
        try:
            named = json.loads(self._manifest.read_text(encoding="utf-8"))["file"]
        except FileNotFoundError:
            named = None
        except (ValueError, LookupError, TypeError):
            return []  # not to be trusted: see `discard`
        return [path for path in numbered if path.name != named]

    @contextmanager
    def _writing(self, wait: float) -> Iterator[None]:
        """Raises Timeout."""
        _make_private(self.folder)
        with FileLock(self.folder / f".{self._name}.lock", timeout=wait, mode=FILE):
            yield

    def _swap(
        self, identity: str, position: Position, details: Mapping[str, Any], write: Callable[[Path], None]
    ) -> None:
        generation = self._next_generation()
        target = self.folder / f"{self._name}.{generation}.{self._suffix}"
        with _written(target) as temporary:
            write(temporary)
        size, checksum = _measure(target)
        manifest = Manifest(
            SCHEMA, generation, target.name, size, checksum, identity, **asdict(position), details=details
        )
        with _written(self._manifest) as temporary:
            temporary.write_text(json.dumps(asdict(manifest)), encoding="utf-8")
        self._sweep(target)

    def _saved(self, identity: str) -> Manifest | None:
        try:
            manifest = self._read_manifest(identity)
        except Distrusted:
            return None
        # A data file that is not there covers nothing.
        return manifest if manifest is not None and (self.folder / manifest.file).is_file() else None

    def _read_manifest(self, identity: str) -> Manifest | None:
        try:
            text = self._manifest.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise Distrusted("the manifest is no text") from error
        try:
            manifest = Manifest(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise Distrusted(f"the manifest cannot be read: {error}") from error
        if manifest.schema != SCHEMA:
            raise Distrusted(f"it has schema {manifest.schema}, and this program writes {SCHEMA}")
        if manifest.identity != identity:
            raise Distrusted(f"it holds {manifest.identity}, not {identity}")
        if Path(manifest.file).name != manifest.file:
            raise Distrusted(f"it names {manifest.file!r}, which is not in its folder")
        return manifest

    def _numbered(self) -> dict[Path, int]:
        found = {path: path.name.split(".") for path in self.folder.glob(f"{self._name}.*.{self._suffix}*")}
        return {path: int(parts[1]) for path, parts in found.items() if parts[1].isdecimal()}

    def _next_generation(self) -> int:
        return max(self._numbered().values(), default=0) + 1

    def _sweep(self, kept: Path | None) -> None:
        for path in self._numbered():
            if path != kept:
                path.unlink(missing_ok=True)


def _verify(path: Path, manifest: Manifest) -> None:
    size, checksum = _measure(path)
    if size != manifest.size:
        raise Distrusted(f"{path.name} has {size:,} bytes instead of {manifest.size:,}")
    if checksum != manifest.checksum:
        raise Distrusted(f"{path.name} has another checksum than when it was written")


def _measure(path: Path) -> tuple[int, str]:
    """Size and checksum."""
    digest, size = xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def _make_private(folder: Path) -> None:
    """With its parents; folders that are there keep their modes."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=FOLDER, exist_ok=True)


@contextmanager
def _written(target: Path) -> Iterator[Path]:
    """A temporary file beside `target` that takes its name once it is on the disk."""
    temporary = target.with_name(target.name + TEMPORARY)
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE))
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
