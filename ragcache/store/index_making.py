"""How an index is made: its rows of the files, beside the one that is there, and put into its place when it is full."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragcache.host import FILE, private_file, private_folder
from ragcache.store.frame import is_name, key_of, read_fields, seen_of
from ragcache.store.index_parts import ENTRY, SCHEMA, Rows, connect, fresh_number, inode_of, mark_of, write_mark
from ragcache.store.index_seen import short_names
from ragcache.store.layout import OLD_PIN, OLD_USAGE, TEMPORARY, FolderLayout, being_written, inode_kept, stat_of
from ragcache.types import VariantKey

_COUNTED = "(SELECT count(*), coalesce(sum(nbytes), 0) FROM entries)"
_KEY = ("fingerprint", "system", "history", "chunk", "border")  # and the context
_RESERVE = 1 << 20  # bytes, of which a change that frees some can be written on a full disk


@contextmanager
def alone(layout: FolderLayout) -> Iterator[None]:
    """Among all who make the index."""
    private_folder(layout.root)
    # A descriptor of its own each time: flock then holds between threads too.
    fd = os.open(layout.mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        # Said explicitly, because a child forked meanwhile has the descriptor too and would keep the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def make(layout: FolderLayout, old: int | None, shared: bool) -> None:
    """In the place of this one, or of none; not where another one is there already."""
    half, whole = (layout.index.with_name(layout.index.name + end) for end in (".making", ".new"))
    with alone(layout):
        inode, useless = inode_of(layout.index), list[Path]()
        if inode not in (None, old):
            return
        with _kept(layout.index) as kept:
            if inode is not None or not whole.exists():  # nobody was killed just as it was put into its place
                useless = _fill(layout, half, shared, kept)
                half.replace(whole)
            _remove(layout.index)
            whole.replace(layout.index)
    remove_all(useless)


@dataclass
class _Kept:
    """What no file tells, as far as it can be read."""

    pins: Rows = field(default_factory=list)
    uses: Rows = field(default_factory=list)


@contextmanager
def _kept(index: Path) -> Iterator[_Kept]:
    """Of the old index. Who finds it sound, as an older version does, changes nothing meanwhile: it would be lost."""
    kept = _Kept()
    with ExitStack() as held:
        if inode_of(index) is not None:
            with suppress(sqlite3.Error):
                old = held.enter_context(closing(connect(index)))
                with suppress(sqlite3.Error):
                    old.execute("BEGIN IMMEDIATE")
                kept.pins = old.execute("SELECT digest, owner, expires FROM pins").fetchall()
                kept.uses = old.execute("SELECT used, uses, digest FROM entries WHERE uses > 0").fetchall()
        yield kept


def _fill(layout: FolderLayout, half: Path, shared: bool, kept: _Kept) -> list[Path]:
    _remove(half)
    private_file(half)
    try:
        with closing(connect(half)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")  # what a power cut leaves of it is made again
            connection.executescript(SCHEMA)
            connection.execute("BEGIN")
            connection.executemany("INSERT OR IGNORE INTO pins VALUES (?, ?, ?)", kept.pins)
            useless = rebuild(connection, layout)
            connection.executemany("UPDATE entries SET used = max(used, ?), uses = ? WHERE digest = ?", kept.uses)
            connection.execute("COMMIT")
            connection.execute(f"PRAGMA journal_mode = {journal(shared)}")
            write_mark(layout, mark_of(connection, half.stat().st_ino, shared))
    except (sqlite3.Error, OSError):
        _remove(half)  # a full disk wants its room
        raise
    return useless


def journal(shared: bool) -> str:
    return "delete" if shared else "wal"


def _remove(index: Path) -> None:
    """It first: who opens it meanwhile is not to begin another log for it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        index.with_name(index.name + suffix).unlink(missing_ok=True)


def remove_all(paths: list[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def keep_room(layout: FolderLayout) -> None:
    """Where there is room: who needs it on a full disk frees more."""
    with suppress(OSError):
        fd = os.open(layout.reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE)
        try:
            if os.fstat(fd).st_size < _RESERVE:
                os.pwrite(fd, os.urandom(_RESERVE), 0)  # macOS has no posix_fallocate; zeros may be compressed
        except OSError:
            os.ftruncate(fd, 0)
        finally:
            os.close(fd)


def give_room(layout: FolderLayout) -> None:
    with suppress(OSError):
        os.truncate(layout.reserve, 0)


def rebuild(connection: sqlite3.Connection, layout: FolderLayout) -> list[Path]:
    """Make the rows those of the files, whoever wrote them: what is known of a file that is still there stays. Pins of
    folders from before the index, and when their files were last used, are taken over; returns files that told of it.
    """
    sql = "SELECT digest, engine, family, inode, nbytes, fingerprint IS NOT NULL, coming FROM entries"
    known = {digest: tuple(told) for digest, *told in connection.execute(sql)}
    usage = layout.root / OLD_USAGE
    taken_over, pins = usage.exists(), list[Path]()
    placed, unreadable = set[str](), list[Path]()
    for found in layout.files():
        engine, family, digest = found.place
        path = Path(found.path)
        if found.path.endswith(TEMPORARY):
            being_written(path)
        elif found.path.endswith(OLD_PIN):
            if taken_over:  # or it was left by who did so, and its entry may have been unpinned since
                connection.execute("INSERT OR IGNORE INTO pins VALUES (?, '', NULL)", (digest,))
            pins.append(path)
        elif found.is_entry:
            # What could not be read is read again.
            same = known.get(digest) == (engine, family, inode_kept(found.stat), found.stat.st_size, True, None)
            added = True if same else add_file(connection, layout, path)
            if added:
                placed.add(digest)
            elif added is None:
                unreadable.append(path)
    for path in unreadable:
        if path.stem not in placed:  # a bad copy of a sound one, in another place, is for `verify`
            placed.add(path.stem)
            add_file(connection, layout, path, unread=True)
    waiting = {digest for digest, (*_, coming) in known.items() if coming and being_written(layout.temporary(coming))}
    gone = known.keys() - placed - waiting
    connection.executemany("DELETE FROM entries WHERE digest = ?", [(digest,) for digest in gone])
    connection.execute(f"UPDATE folder SET (entries, nbytes) = {_COUNTED} WHERE (entries, nbytes) != {_COUNTED}")
    return [*pins, usage] if taken_over else pins


def add_file(connection: sqlite3.Connection, layout: FolderLayout, path: Path, unread: bool = False) -> bool | None:
    """A row of what lies there; none where its header tells of another place, or (None) cannot be read. `unread`: then
    all the same.
    """
    stat = stat_of(path)
    if stat is None:
        return False
    fields = None
    if not unread:
        with suppress(OSError):  # another user's, or the disk fails
            fields = read_fields(path)
        if fields is None:
            return None
        if not layout.holds(path, key_of(fields)):
            return False
    row = {"digest": path.stem, "engine": path.parts[-4], "family": path.parent.name, "nbytes": stat.st_size}
    used = min(stat.st_mtime_ns, time.time_ns())  # of files that come from elsewhere it may be in any year
    told = {"inode": inode_kept(stat), "file": fresh_number(), "used": used, "coming": None}
    connection.execute(ENTRY, row | told | _header_columns(fields))
    return True


def key_columns(key: VariantKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in _KEY} | {"context": json.dumps(key.context)}


def _header_columns(fields: dict[str, Any] | None) -> dict[str, Any]:
    if fields is None:
        return dict.fromkeys((*_KEY, "context", "codec", "lost", "seen"))
    codec, lost = fields.get("codec"), fields.get("lost")  # of a forged file anything
    names = isinstance(lost, list) and all(map(is_name, lost))
    return key_columns(key_of(fields)) | {
        "codec": codec if is_name(codec) else None,
        "lost": json.dumps(lost) if names else None,
        "seen": short_names(*seen_of(fields)),
    }
