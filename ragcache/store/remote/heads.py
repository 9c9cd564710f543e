"""The beginnings of objects: header and profile, read without what follows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ragcache.errors import CorruptEntry
from ragcache.store.frame import Fetch
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.names import ObjectPlace

T = TypeVar("T")
FIRST, MOST = 64 << 10, 16 << 20  # bytes that are read: at first, and at most


class _More(Exception):
    """What is wanted ends further on."""

    def __init__(self, end: int):
        super().__init__(end)
        self.end = end


async def from_head(bucket: Bucket, place: ObjectPlace, where: str, parse: Callable[[Fetch], T]) -> T | None:
    """What is found there; None where the object is gone. Raises what `parse` does, CorruptEntry and RemoteError."""
    end = min(FIRST, place.size)
    while True:
        data = await bucket.read(place.path, 0, end) if end else memoryview(b"")
        if data is None:
            return None
        try:
            return parse(_fetch(data))
        except _More as more:
            if len(data) < end or more.end > min(MOST, place.size):
                raise CorruptEntry(f"{where} is cut short, or its header is too long") from None
            end = more.end


def _fetch(data: memoryview) -> Fetch:
    def fetch(offset: int, size: int) -> memoryview:
        if offset + size > len(data):
            raise _More(offset + size)
        return data[offset : offset + size]

    return fetch
