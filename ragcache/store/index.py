"""What a cache folder holds, for all processes that share it: an index beside the files.

The files are the truth, and the index is made of them where it is lost. Whoever is killed leaves no file that the index
does not know: an entry's row is there before its file is renamed into its place, and goes after the file. A row without
a file is a miss to those who ask for it, and goes then.
"""

from __future__ import annotations

import errno
import json
import sqlite3
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ragcache.address import is_of
from ragcache.errors import StoreError, StoreFull
from ragcache.host import private_folder
from ragcache.store.background import Background, PendingUses
from ragcache.store.eviction import Evictable, Uses
from ragcache.store.eviction.victims import first_of
from ragcache.store.index_file import IndexFile
from ragcache.store.index_making import add_file, key_columns
from ragcache.store.index_parts import ENTRY, PREFIXES, evictable, fresh_number, is_pinned
from ragcache.store.index_seen import PLACE_AND_ADDRESS, entries_seeing, key_told, short_names
from ragcache.store.layout import (
    KV,
    OLD_USAGE,
    FolderLayout,
    being_written,
    inode_kept,
    remove_if_empty,
    stat_of,
)
from ragcache.types import Lineage, VariantKey

T = TypeVar("T")
FULL = {errno.ENOSPC, errno.EDQUOT}
Row: TypeAlias = "tuple[str, str, str, int]"  # engine, family, digest, and the change that brought its file
ELSEWHERE = """
SELECT engine, family, digest, file FROM entries WHERE chunk = ? AND border = ? AND engine = ?
AND fingerprint = ? AND system NOT IN ('', ?) AND file > 0 ORDER BY used DESC LIMIT ?
"""
EVERYWHERE = f"""
SELECT {PLACE_AND_ADDRESS} FROM entries WHERE chunk = ? AND border GLOB ? AND system != '' AND file > 0
"""


def place_of(key: VariantKey) -> tuple[str, str, str]:
    """Of a chunk behind whatever System segment, in `by_chunk`."""
    return key.chunk, key.border, key.fingerprint[:16]


@dataclass(frozen=True)
class Contents:
    """Of a cache file, as the index tells them."""

    key: VariantKey
    codec: str
    lineage: Lineage  # as it is stored
    nbytes: int

    @property
    def columns(self) -> dict[str, Any]:
        key, lineage = self.key, self.lineage
        place = {"digest": key.digest, "engine": key.fingerprint[:16], "family": key.family, "nbytes": self.nbytes}
        seen = short_names({*key.context, *lineage.seen}, lineage.complete or not key.history)
        return place | key_columns(key) | {"codec": self.codec, "lost": json.dumps(lineage.lost), "seen": seen}


class Change:
    """What may be done to the index, and to the files, in one step for all others."""

    def __init__(self, connection: sqlite3.Connection, layout: FolderLayout):
        self._connection, self._layout = connection, layout

    @property
    def nbytes(self) -> int:
        ((found,),) = self._connection.execute("SELECT nbytes FROM folder").fetchall()
        return int(found)

    def entry(self, digest: str) -> Evictable | None:
        return next(self._evictables("WHERE digest = ?", digest), None)

    def family(self, family: str) -> list[Evictable]:
        """What is being brought is somebody's: it stays, as what is pinned does."""
        coming = self._evictables("WHERE family = ? AND coming IS NOT NULL", family)
        settled = self._evictables("WHERE family = ? AND coming IS NULL", family)
        return [*settled, *(replace(one, pinned=True) for one in coming)]

    def trim(self, fingerprint: str, most: int) -> int:
        """Remove of the exact prefixes whose fingerprint ends so what leaves so many bytes -> how many went. No other
        rows are looked at.
        """
        own = f"WHERE {PREFIXES} AND substr(fingerprint, -length(?1)) = ?1"
        ((need,),) = self._connection.execute(
            f"SELECT coalesce(sum(nbytes), 0) - ?2 FROM entries {own}", (fingerprint, most)
        )
        loose = (one for one in self._evictables(f"{own} ORDER BY used", fingerprint) if not one.pinned)
        return sum(self.remove(Path(one.name)) for one in first_of(loose, need))

    def end_era(self) -> None:
        self._connection.execute("UPDATE folder SET era = ?", (fresh_number(),))

    def loose(self) -> Iterator[Evictable]:
        """Those that may be evicted, the one that was used longest ago first. Not to be read on after a change."""
        return self._evictables(f"WHERE coming IS NULL AND NOT {is_pinned(time.time_ns())} ORDER BY used")

    def announce(self, contents: Contents, temporary: str) -> None:
        """That this file will be renamed to be this entry."""
        told = {"inode": None, "file": 0, "used": time.time_ns(), "coming": temporary}
        self._connection.execute(ENTRY, contents.columns | told)

    def take_in(self, path: Path) -> bool:
        """The file that lies there now; says whether one does. An entry that has none is forgotten."""
        stat = stat_of(path)
        if stat is None:
            self.forget(path)
            return False
        self._connection.execute(
            "UPDATE entries SET coming = NULL, nbytes = ?, inode = ?, used = ?, file = ? WHERE digest = ?",
            (stat.st_size, inode_kept(stat), time.time_ns(), fresh_number(), path.stem),
        )
        return True

    def bring(self, announce: Callable[[Change], object], temporary: Path, target: Path) -> bool:
        """Not where nothing tells any more that it was announced: no file is to be there that the index does not know.
        Announced again, since the row may tell by now of the old file, or of another writer's.
        """
        if self.entry(target.stem) is None:
            return False
        announce(self)
        private_folder(target.parent)
        with suppress(FileNotFoundError):  # it is done again
            temporary.replace(target)
        return self.take_in(target)

    def settle(self) -> None:
        """What writers who died had announced."""
        waiting = "SELECT digest, engine, family, coming FROM entries WHERE coming IS NOT NULL"
        for digest, engine, family, coming in self._connection.execute(waiting).fetchall():
            if not being_written(self._layout.temporary(coming)):
                path = self._layout.place(engine, family, digest)
                if self.take_in(path):  # which may be the old one still: what was told of the new one does not hold
                    add_file(self._connection, self._layout, path)

    def remove(self, path: Path) -> bool:
        """An entry and its file; says whether there was one. Its pins stay."""
        there = stat_of(path) is not None
        path.unlink(missing_ok=True)
        self.forget(path)
        remove_if_empty(path.parent)
        return there

    def delete(self, path: Path) -> bool:
        """With its pins, and then what was put aside of it."""
        self.unpin(path.stem)
        there = self.remove(path)
        self._layout.discard(path.stem)
        return there

    def forget(self, path: Path, unless: str = "") -> None:
        """The entry of this place: a copy of its file that lies in another one is not it."""
        place = path.stem, path.parts[-4], path.parent.name
        self._connection.execute(f"DELETE FROM entries WHERE digest = ? AND engine = ? AND family = ?{unless}", place)

    def forget_missing(self, path: Path) -> None:
        """An entry without a file, unless one is coming."""
        if stat_of(path) is None:
            self.forget(path, " AND coming IS NULL")

    def pin(self, digest: str, owner: str, expires: int | None) -> None:
        self._connection.execute("DELETE FROM pins WHERE expires <= ?", (time.time_ns(),))
        self._connection.execute("INSERT OR REPLACE INTO pins VALUES (?, ?, ?)", (digest, owner, expires))

    def is_pinned(self, digest: str) -> bool:
        wanted = "SELECT 1 FROM pins WHERE digest = ? AND coalesce(expires > ?, 1)"
        return bool(self._connection.execute(wanted, (digest, time.time_ns())).fetchall())

    def unpin(self, digest: str, owner: str | None = None) -> None:
        """For one owner, or for all."""
        self._connection.execute("DELETE FROM pins WHERE digest = ?1 AND owner = coalesce(?2, owner)", (digest, owner))

    def audit(self) -> tuple[tuple[int, int], dict[str, int], dict[str, int]]:
        usage = self._connection.execute("SELECT entries, nbytes FROM folder").fetchone()
        told = self._connection.execute("SELECT engine, family, digest, nbytes FROM entries")
        rows = {str(self._layout.place(*place)): nbytes for *place, nbytes in told.fetchall()}
        files = {found.path: found.stat.st_size for found in self._layout.files() if found.path.endswith(KV)}
        return usage, rows, files

    def _evictables(self, which: str, *values: Any) -> Iterator[Evictable]:
        sql = f"{evictable(time.time_ns())} {which}"
        for engine, family, digest, nbytes, used, pinned, came, uses in self._connection.execute(sql, values):
            place = self._layout.place(engine, family, digest)
            yield Evictable(str(place), nbytes, used, bool(pinned), came, Uses(uses))


class FolderIndex:
    """Threads may share it. All methods raise OSError and sqlite3.Error."""

    def __init__(self, layout: FolderLayout, background: Background):
        """Opens nothing yet."""
        self._layout, self._background = layout, background
        self._uses = PendingUses()
        self._file = IndexFile(layout)
        self._ended = weakref.finalize(self, self._file.end, self._uses.write)

    def close(self) -> None:
        """What it is asked later opens the index anew."""
        self._ended()

    def open(self) -> None:
        """A version from before the index leaves a file that tells of it; it knows of no index."""
        self._file.open(forced=(self._layout.root / OLD_USAGE).exists())

    def change(self, work: Callable[[Change], T], reserve: bool = True) -> T:
        """Alone among all threads and processes. See `IndexFile.change` for what is done twice."""

        def within(connection: sqlite3.Connection) -> T:
            self._uses.write(connection)
            change = Change(connection, self._layout)
            change.settle()
            return work(change)

        return self._file.change(within, reserve=reserve)

    def family(self, family: str) -> list[Row]:
        """Of each entry; no lock is waited for."""
        wanted = "SELECT engine, family, digest, file FROM entries WHERE family = ? AND file > 0"
        return self._file.read(wanted, (family,))

    def elsewhere(self, key: VariantKey, most: int) -> list[Row]:
        """Of the key's chunk behind other System segments, those that were used last."""
        return self._file.read(ELSEWHERE, (*place_of(key), key.fingerprint, key.system, most))

    def everywhere(self, key: VariantKey) -> list[VariantKey]:
        """The key's chunk behind whatever System segment, of whatever engine."""
        self._settle()
        found = [key_told(self._layout, *row) for row in self._file.read(EVERYWHERE, (key.chunk, key.border))]
        return [one for one in found if one and is_of(key, one)]

    def seeing(self, chunks: Collection[str]) -> list[VariantKey]:
        """Those that these had a part in, and those that do not tell all."""
        self._settle()
        return entries_seeing(self._file.read, self._layout, chunks)

    def _settle(self) -> None:
        """For those who are to miss nothing: who is killed as its file is there leaves a row that tells of none yet."""
        if self._file.read("SELECT 1 FROM entries WHERE coming IS NOT NULL LIMIT 1"):
            self.change(lambda change: None)

    def has(self, digest: str) -> bool:
        return bool(self._file.read("SELECT 1 FROM entries WHERE digest = ? AND coming IS NULL", (digest,)))

    def usage(self) -> tuple[int, int]:
        """Entries and bytes."""
        ((entries, nbytes),) = self._file.read("SELECT entries, nbytes FROM folder")
        return entries, nbytes

    def era(self) -> int:
        ((era,),) = self._file.read("SELECT era FROM folder")
        return int(era)

    def use(self, digest: str, *, counts: bool = True) -> None:
        """Write down later that it was used."""
        if self._uses.add(digest, counts):
            self._background.add(self._write_uses)

    def _write_uses(self) -> None:
        self._file.note(self._uses.write)

    def renew(self) -> None:
        """After a look at every file."""
        self._file.change(lambda connection: None, forced=True)

    def audit(self) -> tuple[tuple[int, int], dict[str, int], dict[str, int]]:
        """Entries and bytes as they are told; bytes by path, of the rows and of the files. Nobody changes them
        meanwhile. What was announced by who gave up is none of them, and goes at whichever change comes next: at this.
        """
        return self.change(Change.audit)


@contextmanager
def reporting(act: str, root: Path) -> Iterator[None]:
    """Raises StoreError for what goes wrong with a folder and its index, StoreFull where that is a full disk."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        full = getattr(error, "errno", None) in FULL or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        kind = StoreFull if full else StoreError
        raise kind(
            f"cannot {act} the cache folder {root}: {error}. Free some space, make it writable, or choose another "
            "folder"
        ) from error
