"""The rows of an index as the files tell them."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ragcache.store.durable import being_written, inode_kept, stat_of
from ragcache.store.frame import is_name, key_of, read_fields
from ragcache.store.index_parts import fresh_number
from ragcache.store.index_tables import ENTRY
from ragcache.store.layout import OLD_PIN, OLD_USAGE, TEMPORARY, FolderLayout
from ragcache.types import VariantKey

_COUNTED = "(SELECT count(*), coalesce(sum(nbytes), 0) FROM entries)"


def rebuild(connection: sqlite3.Connection, layout: FolderLayout) -> list[Path]:
    """Make the rows those of the files, whoever wrote them: what is known of a file that is still there stays. Pins of
    folders from before the index, and when their files were last used, are taken over; returns files that told of it.
    """
    sql = "SELECT digest, engine, family, inode, nbytes, coming FROM entries"
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
            same = known.get(digest) == (engine, family, inode_kept(found.stat), found.stat.st_size, None)
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
    names = ("fingerprint", "system", "history", "chunk", "border")
    return {name: getattr(key, name) for name in names} | {"context": json.dumps(key.context)}


def _header_columns(fields: dict[str, Any] | None) -> dict[str, Any]:
    if fields is None:
        return dict.fromkeys(("fingerprint", "system", "context", "history", "chunk", "border", "codec", "lost"))
    codec, lost = fields.get("codec"), fields.get("lost")  # of a forged file anything
    names = isinstance(lost, list) and all(map(is_name, lost))
    return key_columns(key_of(fields)) | {
        "codec": codec if is_name(codec) else None,
        "lost": json.dumps(lost) if names else None,
    }
