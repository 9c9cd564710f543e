"""Prompts whose KV lies on a disk that gives as much as a test lets it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from ragcache.cache import ChunkCache
from ragcache.engine import PromptRequest
from ragcache.engine.torch.generation import Prefilled, TorchGeneration
from ragcache.loader import Loader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.reading import Pace
from ragcache.loader.threads import DiskThreads
from ragcache.policy import Rates
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment
from tests.tiny import Tiny, assert_close, make_chunks, make_question, make_system, stock

LEAD, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 31, 18, 25, 22, 14, 27, 19)
ALL = len(DOCUMENT)
LIMIT_S = 20.0
ANSWER = 4  # tokens


def ingested(tiny: Tiny, folder: Path, context: int = ALL, codec: str = "raw") -> KVStore:
    """With a context of all chunks, the KV of the document in order is exact."""
    store = open_store(folder, ram_bytes=0, codec=codec)
    cache = ChunkCache(tiny.engine, store, context_chunks=context)
    store.put(cache.system_variant(LEAD))
    assert len(list(cache.ingest(LEAD, DOCUMENT))) == ALL
    return store


def prompt(*places: int) -> list[Segment]:
    return [LEAD, *(DOCUMENT[place] for place in places or range(ALL)), QUESTION]


def over(tiny: Tiny, store: KVStore, loader: Loader, rates: Rates | None = None) -> ChunkCache:
    return ChunkCache(tiny.engine, store, context_chunks=ALL, keep_missed=False, loader=loader, rates=rates)


def cake(
    tiny: Tiny, store: KVStore, threads: DiskThreads, pace: Pace | None = None, rates: Rates | None = None
) -> ChunkCache:
    return over(tiny, store, CakeLoader(threads, pace=pace), rates)


def met(made: Prefilled) -> int:
    """So many leading chunks were computed."""
    tiers = [chunk.tier for chunk in made.report.chunks]
    front = tiers.count(COMPUTED)
    assert tiers == [COMPUTED] * front + ["disk"] * (len(tiers) - front)
    return front


def answer_of(tiny: Tiny, cache: ChunkCache, segments: Sequence[Segment], made: Prefilled) -> list[int]:
    """The tokens over KV that has room for them."""
    request = PromptRequest(segments, cache.linker, ANSWER)
    return list(TorchGeneration(tiny.engine, request, made, cache.source, 0.0))


def assert_is_stock(made: Prefilled, tiny: Tiny) -> None:
    ids, expected = made.plan.ids, stock(tiny.model, made.plan.ids)
    assert_close(made.buffer.k[:, :, : len(ids)], expected.k)
    assert_close(made.buffer.v[:, :, : len(ids)], expected.v)
    assert_close(made.logits, expected.logits[-1])


class Gate:
    """A pace that lets so many pieces through, and no more until it is opened."""

    def __init__(self, count: int):
        self._left, self._lock = count, threading.Lock()
        self.opened, self.shut = threading.Event(), threading.Event()
        self.reads = 0

    def __call__(self, nbytes: int) -> None:
        with self._lock:
            self._left, self.reads = self._left - 1, self.reads + 1
            waits = self._left < 0
        if waits:
            self.shut.set()
            self.opened.wait(LIMIT_S)
