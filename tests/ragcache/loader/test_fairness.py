"""Prompts that share a disk have their turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import pytest

from benchmarks.partial.unchanging import UnchangingStore
from ragcache.cache import ChunkCache
from ragcache.loader import Loader, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.store import open_store
from ragcache.store.base import KVStore, OpenEntry
from ragcache.types import VariantKey
from tests.tiny import Tiny, make_chunks, make_system

PROMPTS, CHUNKS, LIMIT_S = 4, 6, 60.0
SYSTEM = make_system()
LOADERS: Mapping[str, Callable[[DiskThreads], Loader]] = {"cake": CakeLoader, "sequential": SequentialLoader}


class SeenStore(UnchangingStore):
    """It notes what is read, and reads nothing before it may."""

    def __init__(self, store: KVStore, owners: Mapping[str, int]):
        super().__init__(store)
        self.owners, self.order, self.begins = owners, list[int](), threading.Event()

    def open(self, key: VariantKey) -> OpenEntry | None:
        assert self.begins.wait(LIMIT_S)
        self.order.append(self.owners[key.digest])
        return super().open(key)


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    made = DiskThreads(1, "test-fair", LIMIT_S)
    yield made
    made.close()


@pytest.mark.parametrize("loader", LOADERS)
def test_no_prompt_waits_until_another_is_done(tiny: Tiny, tmp_path: Path, threads: DiskThreads, loader: str) -> None:
    kept = open_store(tmp_path, ram_bytes=0, codec="raw")
    cache, owners, prompts = ChunkCache(tiny.engine, kept, context_chunks=0), dict[str, int](), []
    for owner in range(PROMPTS):
        variants = list(cache.ingest(SYSTEM, make_chunks(*[9] * CHUNKS, seed=owner)))
        owners |= {one.key.digest: owner for one in variants}
        starts = accumulate(map(len, variants), initial=len(SYSTEM))
        pieces = zip(range(CHUNKS), starts, variants, strict=False)
        prompts.append([SegmentPiece(index, start, (one.key,), tier="disk") for index, start, one in pieces])
    store, made = SeenStore(kept, owners), LOADERS[loader](threads)
    loadings = [made.begin(pieces, store) for pieces in prompts]
    store.begins.set()
    takers = [threading.Thread(target=list, args=(one.deliveries(),)) for one in loadings]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(LIMIT_S)
    assert len(store.order) == PROMPTS * CHUNKS
    for done in range(PROMPTS, len(store.order)):
        counts = [store.order[:done].count(owner) for owner in range(PROMPTS)]
        assert max(counts) - min(counts) <= 2, store.order
