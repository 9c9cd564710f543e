"""Which entries had seen a text: each row has short names of all that did, and the header says whose they are.

So whoever deletes a text reads the rows, some megabytes, and headers of those entries alone that go. A name that two
texts share costs a look at a header. A file that cannot be read keeps none of the others.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

from ragcache.store.frame import UNREADABLE, key_of, read_fields, seen_of
from ragcache.store.index_parts import Rows
from ragcache.store.layout import FolderLayout
from ragcache.types import VariantKey

_NBYTES = 4  # of a name: of 100,000 entries that have seen 128 texts each, one in 300 texts meets another's
_MOST = 2048  # names; more than any header tells that is sound
_PAGE = 1000  # rows that are read at once: look-ups wait for some 3 ms
PLACE_AND_ADDRESS = "engine, family, digest, fingerprint, system, context, chunk, history, border"  # for `key_told`
# What is being written may not be what lies there yet, so its row tells nothing.
_NAMES = f"""
SELECT rowid, digest, CASE WHEN coming IS NULL THEN seen END FROM entries
WHERE rowid > ? AND file > 0 ORDER BY rowid LIMIT {_PAGE}
"""
_MADE = "SELECT made FROM folder"  # another number where another index was put into this one's place: so have its rows
_ENTRY = f"SELECT {PLACE_AND_ADDRESS} FROM entries WHERE digest = ? AND file > 0"

Read = Callable[[str, Sequence[Any]], Rows]


def short_names(seen: Collection[str], whole: bool) -> bytes | None:
    """For a row. None: the header is to be asked; of what it does not tell whole it may have seen anything."""
    if not whole or len(seen) > _MOST:
        return None
    return struct.pack(f"<{len(seen)}I", *sorted(map(_short, seen)))


def _short(name: str) -> int:
    return xxhash.xxh32_intdigest(name.encode("utf-8", "surrogatepass"))  # in a forged file it may be anything


def entries_seeing(read: Read, layout: FolderLayout, chunks: Collection[str]) -> list[VariantKey]:
    """Those that any of these had a part in, and those whose headers do not tell all."""
    gone = set(chunks)
    found = (_judged(read, layout, digest, gone) for digest in _suspects(read, set(map(_short, gone))))
    return [key for key in found if key is not None]


def _suspects(read: Read, gone: set[int]) -> list[str]:
    """Digests of all entries that had seen these, and perhaps of others."""
    while True:
        made, found, last = read(_MADE, ()), list[str](), 0
        while rows := read(_NAMES, (last,)):
            found += [digest for _, digest, seen in rows if _may_have_seen(seen, gone)]
            last = rows[-1][0]
        if read(_MADE, ()) == made:
            return found


def _may_have_seen(seen: object, gone: set[int]) -> bool:
    if not isinstance(seen, bytes) or len(seen) % _NBYTES:
        return True
    return not gone.isdisjoint(struct.unpack(f"<{len(seen) // _NBYTES}I", seen))


def _judged(read: Read, layout: FolderLayout, digest: str, gone: set[str]) -> VariantKey | None:
    """By its header; where that cannot be read, its row is all that tells whose it is."""
    for row in read(_ENTRY, (digest,)):
        fields = _header(layout.place(*row[:3]))
        if fields is not None:
            seen, whole = seen_of(fields)
            if whole and gone.isdisjoint(seen):
                return None
        return key_told(layout, *row)
    return None


def key_told(layout: FolderLayout, engine: str, family: str, digest: str, *address: Any) -> VariantKey | None:
    """Whose an entry is. A row may be forged or rotten: where it tells of none, or of another one, the header does."""
    with suppress(*UNREADABLE):
        fingerprint, system, context, *rest = address
        key = VariantKey(fingerprint, system, tuple(json.loads(context)), *rest)
        if key.digest == digest:
            return key
    path = layout.place(engine, family, digest)
    fields = _header(path)
    return key_of(fields) if fields is not None and layout.holds(path, key_of(fields)) else None


def _header(path: Path) -> dict[str, Any] | None:
    """None also where the file is another user's, or the disk fails."""
    with suppress(OSError):
        return read_fields(path)
    return None
