"""On the torch engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from benchmarks.caches import capture, memory_cache
from benchmarks.choices import CONTEXTS
from benchmarks.corpus import with_cut
from benchmarks.output import Row
from benchmarks.partial import PartialBenchOptions
from benchmarks.partial.measurement import CONTEXT, Prompts, measure
from benchmarks.ttft.measurement import check_room
from ragcache.cache import ChunkCache
from ragcache.store.base import KVStore
from ragcache.types import Chunk


def run(settings: Settings, texts: Sequence[str], options: PartialBenchOptions, out: Path | None) -> list[Row]:
    parts = load_torch_model(settings)
    check_room(parts, max(options.tokens))
    return measure(TorchPrompts(parts), texts, options, out)


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
