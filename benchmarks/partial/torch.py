"""On the torch engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from app.models.loading import TorchModel
from benchmarks.caches import capture, memory_cache
from benchmarks.choices import CONTEXTS
from benchmarks.corpus import CONTEXT, with_cut
from benchmarks.partial.prompts import Prompts
from ragcache.cache import ChunkCache
from ragcache.store.base import KVStore
from ragcache.types import Chunk


class TorchPrompts(Prompts):
    name: ClassVar[str] = "torch"

    def __init__(self, parts: TorchModel):
        self.parts: TorchModel = parts

    def captured(self, documents: Sequence[Sequence[Chunk]], needed: Sequence[Chunk]) -> KVStore:
        cache = memory_cache(self.parts, CONTEXT)
        for _ in capture(cache, self.parts.template.system(), with_cut(documents, needed), needed):
            pass
        return cache.store

    def cache(self, store: KVStore, keep_missed: bool = False) -> ChunkCache:
        """All learn together what things take, as in an application."""
        return ChunkCache(
            self.parts.engine,
            store,
            context_chunks=CONTEXTS[CONTEXT],
            keep_missed=keep_missed,
            keeper=self.parts.keeper,
            rates=self.parts.learnt,
        )
