"""The frame of a cache file's header, which says whose KV it is. It is read without torch, by whoever counts files.

    RCKV | u16 version | u32 length of the JSON | JSON | u64 xxh3 of all before

This much holds for all versions, so a newer file can be told from a broken one. What was read of cache files is kept,
so that a lookup does not read their headers again.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from ragcache.errors import CorruptEntry, ForeignEntry, NewerEntry
from ragcache.host import BriefLock
from ragcache.store.layout import opened
from ragcache.types import VariantInfo, VariantKey

MAGIC = b"RCKV"
VERSION = 2
READ = (1, VERSION)
MOST_HEADER = 16 << 20  # bytes: a thousand context chunks and a thousand layers have a hundredth of it
PREFIX = struct.Struct("<4sHI")
CHECKSUM = struct.Struct("<Q")

_NAME = re.compile(r"[\w -]{1,128}", re.ASCII)
_NAMES = re.compile(r"[\w -]{1,128}(\n[\w -]{1,128})*", re.ASCII)
# What the JSON of a frame raises that says something else than expected: too deep and too large are among it.
UNREADABLE = (KeyError, TypeError, ValueError, ArithmeticError, RecursionError)

Fetch = Callable[[int, int], memoryview]  # (offset, size) of a file -> exactly these bytes, or raises CorruptEntry
_KEPT = 8192  # entries, and
_NBYTES = 64 << 20  # of their profiles: a chunk of 1,000 tokens behind three others has 24 KB


@dataclass(frozen=True)
class HeaderFrame:
    version: int
    text: bytes  # JSON
    length: int  # of the whole frame


def unframed(fetch: Fetch, file_size: int, where: str) -> HeaderFrame:
    """Raises CorruptEntry or ForeignEntry."""
    magic, version, length = PREFIX.unpack(fetch(0, min(PREFIX.size, file_size)).tobytes().ljust(PREFIX.size, b"\0"))
    end = PREFIX.size + length
    if length > MOST_HEADER:
        raise CorruptEntry(f"{where} is no cache file: its header would have {length:,} bytes")
    if magic != MAGIC or end + CHECKSUM.size > file_size:
        raise CorruptEntry(f"{where} is no cache file, or is cut short: {file_size} bytes beginning with {magic!r}")
    framed = fetch(0, end + CHECKSUM.size)
    if CHECKSUM.unpack(framed[end:])[0] != xxhash.xxh3_64_intdigest(framed[:end]):
        raise CorruptEntry(f"the header of {where} does not match its checksum")
    if version not in READ:
        told = f"schema {version}, this one reads up to {VERSION}"
        if version > VERSION:
            raise made_by_a_newer_one(where, told)
        raise ForeignEntry(f"{where} was made by another version of ragcache ({told}): it will be computed again")
    return HeaderFrame(version, framed[PREFIX.size : end].tobytes(), len(framed))


def made_by_a_newer_one(where: str, why: str) -> NewerEntry:
    return NewerEntry(f"{where} was made by a newer version of ragcache ({why}): this one does not use it")


def key_of(fields: Mapping[str, Any]) -> VariantKey:
    """From the JSON's fields. Raises KeyError, and ValueError for names that could be read as others."""
    fingerprint, system, chunk, history = (fields[part] for part in ("fingerprint", "system", "chunk", "history"))
    context, border = fields["context"], fields.get("border", "")  # which the first version does not tell
    named = are_names(context) and is_name(fingerprint) and is_name(chunk)
    if not named or not all(part == "" or is_name(part) for part in (system, history, border)):
        raise ValueError("its key is not made of names")
    return VariantKey(fingerprint, system, tuple(context), chunk, history, border)


def are_names(told: object) -> bool:
    """A list of them."""
    if not isinstance(told, list) or not all(type(one) is str for one in told):
        return False
    lines = "\n".join(told)
    return not told or (lines.count("\n") == len(told) - 1 and _NAMES.fullmatch(lines) is not None)


def is_name(told: object) -> bool:
    return isinstance(told, str) and _NAME.fullmatch(told) is not None


def read_fields(path: str | Path) -> dict[str, Any] | None:
    """What the header says, its key among it, in which `key_of` finds no fault. None where the file is gone, or its
    header cannot be understood. Raises OSError.
    """
    with opened(path) as fd:
        if fd is None:
            return None
        try:
            frame = unframed(lambda offset, size: _read(fd, offset, size), os.fstat(fd).st_size, str(path))
            fields: dict[str, Any] = json.loads(frame.text)
            key_of(fields)
        except (CorruptEntry, ForeignEntry, *UNREADABLE):
            return None
        return fields


def read_seen(path: str | Path) -> tuple[str, frozenset[str]]:
    """The border of an entry, and the chunks that had a part in it, as its header tells."""
    fields = read_fields(path)
    return ("", frozenset()) if fields is None else (key_of(fields).border, seen_of(fields)[0])  # nobody can use it


def seen_of(fields: Mapping[str, Any]) -> tuple[frozenset[str], bool]:
    told = fields.get("seen")
    named = [one for one in told if isinstance(one, str)] if isinstance(told, list) else []
    whole = not fields.get("history") or (isinstance(told, list) and fields.get("complete") is True)
    return frozenset((*fields["context"], *named)), whole


def _read(fd: int, offset: int, size: int) -> memoryview:
    data = os.pread(fd, size, offset)
    if len(data) != size:
        raise CorruptEntry(f"cut short: {len(data)} of {size} bytes at {offset}")
    return memoryview(data)


class InfoCache:
    """Thread-safe; forgets the entries that were not asked for in the longest time. Holds the newest in any case."""

    def __init__(self, kept: int = _KEPT, nbytes: int = _NBYTES) -> None:
        """At most so many entries, and bytes of profiles."""
        self._kept, self._limit = kept, nbytes
        self._nbytes = 0
        self._lock = BriefLock()
        self._infos: OrderedDict[str, tuple[int, VariantInfo]] = OrderedDict()

    def get(self, digest: str, file: int) -> VariantInfo | None:
        """Of this file, which the index numbers, at the address."""
        with self._lock:
            known = self._infos.get(digest)
            if known is None or known[0] != file:
                return None
            self._infos.move_to_end(digest)
            return known[1]

    def compare(self, digest: str, nbytes: int, lossless: bool) -> None:
        """With the file that lies there: who is killed may put another one there that the index does not number yet."""
        with self._lock:
            known = self._infos.get(digest)
            if known is not None and (known[1].nbytes, known[1].lossless) != (nbytes, lossless):
                self._nbytes -= self._infos.pop(digest)[1].profile.nbytes

    def put(self, digest: str, file: int, info: VariantInfo) -> None:
        with self._lock:
            if digest in self._infos:
                self._nbytes -= self._infos[digest][1].profile.nbytes
            self._infos[digest] = (file, info)
            self._infos.move_to_end(digest)
            self._nbytes += info.profile.nbytes
            while len(self._infos) > 1 and (len(self._infos) > self._kept or self._nbytes > self._limit):
                _, (_, forgotten) = self._infos.popitem(last=False)
                self._nbytes -= forgotten.profile.nbytes
