"""Names of objects. A bucket lists names cheaply and reads objects one by one, so a name tells what is asked of all:

<family[:2]>/<family>/<digest>.<parts>.kv

`parts` has some bits for each text that had a part in the entry, its own among them (a Bloom filter): whoever deletes
a text reads the headers of those alone that may have seen it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import xxhash

from ragcache.store.layout import KV
from ragcache.types import Lineage, VariantKey

UNTOLD = "all"  # of what is not known whole
_NBYTES = 96  # of bits at most: some file systems take names of 255 bytes
_PER_TEXT, _HASHES = 16, 4  # bits; bits that are set. One in 400 is asked in vain, until there are more than 48 texts
_NAME = re.compile(r"([0-9a-f]{2})/([0-9a-f]{64})/([0-9a-f]{64})\.([\w-]{3,128})\.kv", re.ASCII)


@dataclass(frozen=True)
class ObjectPlace:
    """An object as a bucket lists it."""

    path: str
    family: str
    digest: str
    parts: str
    size: int
    written: datetime
    version: str  # another one when it was written again


class Suspicion:
    """Of entries that any of these texts may have had a part in, by their names. One thread at a time."""

    def __init__(self, texts: Collection[str]):
        self._texts = texts
        self._masks: dict[int, list[int]] = {}  # by the number of bytes

    def __call__(self, place: ObjectPlace) -> bool:
        if place.parts == UNTOLD:
            return bool(self._texts)
        bits = _decoded(place.parts)
        if len(bits) not in self._masks:
            self._masks[len(bits)] = [_mask(text, len(bits)) for text in self._texts]
        told = int.from_bytes(bits, "little")
        return any(told & mask == mask for mask in self._masks[len(bits)])


def object_name(key: VariantKey, lineage: Lineage) -> str:
    whole = lineage.complete or not key.history
    parts = _encoded({key.chunk, *key.context, *lineage.seen}) if whole else UNTOLD
    return f"{folder_of(key.family)}{key.digest}.{parts}{KV}"


def folder_of(family: str) -> str:
    return f"{family[:2]}/{family}/"


def parse_name(path: str, size: int, written: datetime, version: str | None) -> ObjectPlace | None:
    """None for what is no name of ours."""
    found = _NAME.fullmatch(path)
    if found is None or found[1] != found[2][:2] or (found[4] != UNTOLD and not _decoded(found[4])):
        return None
    return ObjectPlace(path, found[2], found[3], found[4], size, written, version or str(written))


def _encoded(texts: Collection[str]) -> str:
    size = min(_NBYTES, _PER_TEXT * len(texts) // 8 + 1)
    bits = 0
    for text in texts:
        bits |= _mask(text, size)
    return base64.urlsafe_b64encode(bits.to_bytes(size, "little")).decode().rstrip("=")


def _decoded(parts: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(parts + "=" * (-len(parts) % 4))
    except ValueError:
        return b""


def _mask(text: str, size: int) -> int:
    both = xxhash.xxh3_128_intdigest(text.encode("utf-8", "surrogatepass"))
    first, step = both >> 64, (both & (1 << 64) - 1) | 1
    places = [(first + turn * step) % (8 * size) for turn in range(_HASHES)]
    return sum(1 << place for place in set(places))
