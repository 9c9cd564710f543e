"""Where things lie in a cache folder. Its files are there whole or not at all, also after a kill or a power cut.

<root>/<fingerprint[:16]>/<family[:2]>/<family>/<digest>.kv    a variant
<root>/writing/<digest>.*.tmp                                  being written
<root>/quarantine/<digest>.kv, <digest>.txt                    a bad file and why
<root>/index.sqlite, index.mark, index.reserve                 see index_file.py and index_making.py
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ragcache.host import FILE, private_folder, sync
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

    def discard(self, digest: str) -> None:
        """A bad file of this address that was put aside, and why it is one."""
        for kind in (KV, ".txt"):
            with suppress(FileNotFoundError, NotADirectoryError):
                (self.quarantine / f"{digest}{kind}").unlink()

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

    def has_family(self, engine: str, family: str) -> bool:
        folder = self.root / engine / family[:2] / family
        return any(item.name.endswith(KV) and item.is_file() for item in _listing(folder))

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


@contextmanager
def written_beside(target: Path, parts: Iterable[memoryview]) -> Iterator[Path]:
    """A file in the folder of `target` that holds `parts` and is on the disk; the block renames it or it is removed."""
    fd, temporary = _create_locked(target)
    try:
        for part in parts:
            _write_all(fd, part)
        os.fsync(fd)
        yield temporary
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in it last. Without its parents: what a power cut takes from there is computed again."""
    with suppress(FileNotFoundError):  # another process has deleted the entry and its empty folder
        sync(folder)


def sweep(temporaries: Iterable[Path]) -> int:
    """Remove the temporary files whose writers are dead: a living one holds a lock on its file."""
    return sum(_swept(path) for path in temporaries)


def being_written(temporary: Path) -> bool:
    """Whether its writer lives and has not renamed it. What nobody writes is removed."""
    return not _swept(temporary) and temporary.exists()


def _swept(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # NFS locks only what may be written
    except OSError:
        return False  # gone, or another user's
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False  # locked, or its file system keeps no locks
    finally:
        os.close(fd)
    return True


def _create_locked(target: Path) -> tuple[int, Path]:
    while True:
        temporary = target.with_name(f"{target.stem}.{os.getpid()}.{secrets.token_hex(4)}{TEMPORARY}")
        try:
            private_folder(target.parent)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
        except FileNotFoundError:
            continue  # another process removed the empty folder just now
        except FileExistsError:
            if any(map(_blocked, target.parents)):
                raise
            continue  # mkdir met the folder, and it was gone when mkdir looked again
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, temporary
        os.close(fd)  # swept between its creation and its lock


def _blocked(folder: Path) -> bool:
    """Whether a file or a dangling link stands where a folder should."""
    try:
        return not stat.S_ISDIR(folder.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return folder.is_symlink()


def _write_all(fd: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.write(fd, data[done:])


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # not empty, or gone already
        folder.rmdir()


@contextmanager
def opened(path: str | Path) -> Iterator[int | None]:
    """A descriptor to read from, or None when there is no such file. A pipe in its place keeps nobody waiting."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def inode_kept(found: os.stat_result) -> int:
    """As SQLite can hold it: those of network file systems may have 64 bits."""
    return found.st_ino & (2**63 - 1)


def stat_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
