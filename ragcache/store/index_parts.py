"""What an index's file is made, opened and judged with: tables, connections, their errors, and the mark beside it."""

from __future__ import annotations

import errno
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragcache.address import prefix_name
from ragcache.host import FILE, network_file_system
from ragcache.store.eviction import Evictable
from ragcache.store.layout import KV, OLD_PIN, FolderLayout

BUSY_S = 60.0  # that a change waits for those of other processes
BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBER = 20  # characters of the mark's first part
_LOOKS = 5  # beside those who change it: a mark is there a moment before its change
_TORN = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_CANTOPEN}
Rows = list[tuple[Any, ...]]
VERSION = 5  # an index of another version is made again
_COLUMNS = (
    *("digest", "engine", "family", "fingerprint", "system", "context", "history", "chunk", "border"),
    *("codec", "lost", "seen", "nbytes", "inode", "file", "used", "coming"),
)
PREFIXES = f"substr(fingerprint, {-len(prefix_name(''))}) = '{prefix_name('')}'"  # rows of theirs
SCHEMA = f"""
BEGIN;
CREATE TABLE folder (
    revision INTEGER NOT NULL,  -- the last change: a number that no other one has
    entries INTEGER NOT NULL,
    nbytes INTEGER NOT NULL,
    made INTEGER NOT NULL,  -- a number that no other index has
    era INTEGER NOT NULL  -- another one after each deletion of texts
);
INSERT INTO folder VALUES (1, 0, 0, random(), random());
CREATE TABLE entries (
    digest TEXT NOT NULL UNIQUE,
    engine TEXT NOT NULL,
    family TEXT NOT NULL,
    -- NULL where a header cannot be read:
    fingerprint TEXT, system TEXT, context TEXT, history TEXT, chunk TEXT, border TEXT, codec TEXT,
    lost TEXT,  -- NULL where its file does not tell: its codec does
    seen BLOB,  -- short names of all chunks that had a part in it; NULL where the header is to be asked (index_seen.py)
    nbytes INTEGER NOT NULL,
    inode INTEGER,
    file INTEGER NOT NULL,  -- a number that no other one had at this address; 0 while there is none
    used INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    coming TEXT  -- the temporary file that will take this place
);
CREATE INDEX by_family ON entries (family, engine, digest, file);
CREATE INDEX by_chunk ON entries (chunk, border, engine, used);
CREATE INDEX by_use ON entries (used);
CREATE INDEX by_prefix ON entries (used, fingerprint, nbytes) WHERE {PREFIXES};
CREATE INDEX by_coming ON entries (coming) WHERE coming IS NOT NULL;
CREATE TABLE pins (
    digest TEXT NOT NULL, owner TEXT NOT NULL, expires INTEGER, PRIMARY KEY (digest, owner)
) WITHOUT ROWID;
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
    UPDATE folder SET entries = entries + 1, nbytes = nbytes + new.nbytes;
END;
CREATE TRIGGER resized AFTER UPDATE OF nbytes ON entries BEGIN
    UPDATE folder SET nbytes = nbytes + new.nbytes - old.nbytes;
END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
    UPDATE folder SET entries = entries - 1, nbytes = nbytes - old.nbytes;
END;
PRAGMA user_version = {VERSION};
COMMIT;
"""
# Of an entry that is known its uses and its file stay, until another file has come.
ENTRY = f"""
INSERT INTO entries ({", ".join(_COLUMNS)}, uses) VALUES ({", ".join(f":{name}" for name in _COLUMNS)}, 0)
ON CONFLICT (digest) DO UPDATE SET file = CASE :file WHEN 0 THEN file ELSE :file END, used = max(used, :used),
    {", ".join(f"{name} = :{name}" for name in _COLUMNS if name not in ("digest", "file", "used"))}
"""
# Those of a JSON list of families that an engine has.
ASKED = """
SELECT value FROM json_each(?) AS asked
WHERE EXISTS (SELECT 1 FROM entries WHERE family = asked.value AND engine = ? AND file > 0)
"""


def evictable(now_ns: int) -> str:
    """What makes an `Evictable` of each entry: its place, its bytes, its last use, whether it is pinned then, when it
    came, and its uses.
    """
    return f"SELECT engine, family, digest, nbytes, used, {is_pinned(now_ns)}, rowid, uses FROM entries"


def is_pinned(now_ns: int) -> str:
    """Whether an entry is, then."""
    pins = f"SELECT 1 FROM pins WHERE pins.digest = entries.digest AND coalesce(expires > {now_ns}, 1)"
    return f"EXISTS ({pins})"


class UnusableIndex(sqlite3.DatabaseError):
    """Of another version, torn where SQLite does not see it, or not in its place any more."""


@dataclass(frozen=True)
class Connected:
    connection: sqlite3.Connection
    inode: int

    def mark(self, shared: bool) -> bytes:
        return mark_of(self.connection, self.inode, shared)


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def inode_of(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def torn(error: Exception) -> bool:
    """Or of other tables, columns or types than it was made with."""
    if isinstance(error, UnusableIndex | TypeError | ValueError):
        return True
    unknown = sqlite3.SQLITE_ERROR if isinstance(error, sqlite3.OperationalError) else 0  # of text that is none
    return getattr(error, "sqlite_errorcode", unknown) & 0xFF in _TORN


def no_room(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", 0) in _NO_ROOM


def fresh_number() -> int:
    """That nobody has given yet: neither in an older copy of an index, nor by one who was killed."""
    return secrets.randbits(62) + 1


def joined(path: Path) -> Connected | None:
    """The index that lies there; None where there is none. No lock is waited for."""
    inode = inode_of(path)
    if inode is None:
        return None
    connection = connect(path)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:  # both would make it anew again and again
            raise sqlite3.NotSupportedError(
                f"{path} is a newer version's, which may be running: use that ragcache, or delete this file"
            )
        if version != VERSION:
            raise UnusableIndex("an older version's")
        # Opens SQLite's log too, which goes by its name.
        connection.execute("SELECT revision, made FROM folder").fetchone()
        if inode_of(path) != inode:
            raise UnusableIndex("another one was put into its place")
    except sqlite3.Error as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError) and inode_of(path) != inode:  # SQLite met halves of two
            raise UnusableIndex("another one was put into its place") from error
        raise
    return Connected(connection, inode)


def mark_of(connection: sqlite3.Connection, inode: int, shared: bool) -> bytes:
    """Of one length, so that it is written in one piece."""
    (revision,) = connection.execute("SELECT revision FROM folder").fetchone()
    boot = ""  # each of several machines has another one
    if not shared:
        with suppress(OSError):
            boot = BOOT.read_text().strip()
    return f"{revision:0{_NUMBER}} {inode:020} {boot:36.36}\n".encode()


def read_mark(layout: FolderLayout) -> bytes:
    try:
        return layout.mark.read_bytes()
    except FileNotFoundError:
        return b""


def write_mark(layout: FolderLayout, text: bytes) -> None:
    """Before the commit: who is killed in between leaves an index that is looked over. So does a full disk."""
    with suppress(OSError):
        fd = os.open(layout.mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE)
        try:
            os.pwrite(fd, text, 0)
            os.ftruncate(fd, len(text))
        finally:
            os.close(fd)


def look(layout: FolderLayout, sql: str, values: Sequence[Any] = ()) -> Rows | None:
    """For those who change nothing: nothing is made, not even the files that SQLite has beside an index in use. None
    where there is no index, or not that of the folder as it is.
    """
    shared = bool(network_file_system(layout.root))
    with suppress(sqlite3.Error, OSError):
        for _ in range(_LOOKS):
            used, known = (layout.index.with_name(layout.index.name + end).exists() for end in ("-wal", "-shm"))
            if used and not known:
                return None
            marks, inode = {layout.mark.read_bytes()}, layout.index.stat().st_ino
            with closing(connect(layout.index, "ro" if used else "ro&immutable=1")) as connection:
                connection.execute("BEGIN")
                mark = mark_of(connection, inode, shared)
                marks.add(layout.mark.read_bytes())
                rows = connection.execute(sql, values).fetchall() if mark in marks else None
            if rows is not None and (used or layout.mark.read_bytes() == mark):
                return rows
    return None


def there(layout: FolderLayout, engine: str, families: Collection[str]) -> set[str]:
    """Those of an engine's families that have an entry, for those who change nothing: they alone are looked up."""
    rows = look(layout, ASKED, (json.dumps([*families]), engine))
    if rows is not None:
        return {family for (family,) in rows}
    return {one for one in families if layout.has_family(engine, one)}


def seen(layout: FolderLayout, engines: Collection[str] | None = None, family: str | None = None) -> list[Evictable]:
    """What there is, for those who change nothing: of all engines or some, or of one family. Without an index that can
    be relied on the folder is listed.
    """
    sql = evictable(time.time_ns()) + " WHERE file > 0"
    rows = look(layout, sql) if family is None else look(layout, f"{sql} AND family = ?", (family,))
    if rows is not None:
        return [
            Evictable(str(layout.place(engine, family, digest)), nbytes, used, bool(pinned))
            for engine, family, digest, nbytes, used, pinned, *_ in rows
            if engines is None or engine in engines
        ]
    files = list(layout.files(engines, family))
    pins = {found.path for found in files if found.path.endswith(OLD_PIN)}
    return [
        Evictable(found.path, found.stat.st_size, found.stat.st_mtime_ns, found.path.removesuffix(KV) + OLD_PIN in pins)
        for found in files
        if found.path.endswith(KV)
    ]
