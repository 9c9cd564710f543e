from __future__ import annotations

from collections.abc import Callable

import pytest

from ragcache.cache import ChunkCache
from ragcache.keeping import Keeper
from ragcache.store import open_store
from ragcache.types import Chunk
from tests.tiny import Tiny, make_system

SYSTEM = make_system()
MakeCache = Callable[..., ChunkCache]


@pytest.fixture(autouse=True)
def _bits_are_compared(one_thread: None) -> None:
    pass


@pytest.fixture
def make_cache(tiny: Tiny) -> MakeCache:
    def make(
        *chunks: Chunk, linker: str = "naive", keep_missed: bool = False, keeper: Keeper | None = None
    ) -> ChunkCache:
        store = open_store(codec="raw")
        cache = ChunkCache(tiny.engine, store, linker, keep_missed=keep_missed, keeper=keeper)
        if chunks:
            list(cache.ingest(SYSTEM, chunks))
        return cache

    return make
