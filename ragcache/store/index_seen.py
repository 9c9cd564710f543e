"""Which entries had seen a text: each row has short names of all that did, and the header says whose they are.

So whoever deletes a text reads the rows, some megabytes, and headers of those entries alone that go. A name that two
texts share costs a look at a header.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any

import xxhash

from ragcache.store.frame import key_of, read_fields, seen_of
from ragcache.store.index_parts import Rows
from ragcache.store.layout import FolderLayout
from ragcache.types import VariantKey

_NBYTES = 4  # of a name: of 100,000 entries that have seen 128 texts each, one in 300 texts meets another's
_MOST = 2048  # names; more than any header tells that is sound
_PAGE = 1000  # rows that are read at once: look-ups wait for some 3 ms
_KEY = ("fingerprint", "system", "context", "chunk", "history", "border")
# What is being written may not be what lies there yet, so its row tells nothing.
_NAMES = f"""
SELECT rowid, digest, CASE WHEN coming IS NULL THEN seen END FROM entries
WHERE rowid > ? AND file > 0 ORDER BY rowid LIMIT {_PAGE}
"""
_MADE = "SELECT made FROM folder"  # another number where another index was put into this one's place: so have its rows
_ENTRY = f"SELECT engine, family, {', '.join(_KEY)} FROM entries WHERE digest = ? AND file > 0"

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
    """By its header; where that cannot be read, its row is all that tells whose it is, and nobody can use it."""
    for engine, family, *told in read(_ENTRY, (digest,)):
        fields = read_fields(layout.place(engine, family, digest))
        if fields is not None:
            seen, whole = seen_of(fields)
            if whole and gone.isdisjoint(seen):
                return None
        if None not in told:
            row = dict(zip(_KEY, told, strict=True))
            return VariantKey(**row | {"context": tuple(json.loads(row["context"]))})
        return None if fields is None else key_of(fields)
    return None
