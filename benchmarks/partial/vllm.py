"""Inside vLLM, whose prefix cache is off: it would answer each prompt's second time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from app.models.loading import VllmModel
from app.settings import Settings
from benchmarks.caches import capture
from benchmarks.corpus import CONTEXT, with_cut
from benchmarks.partial.prompts import Prompts
from benchmarks.vllm_model import empty_store, open_vllm, vllm_cache
from ragcache.cache import ChunkCache
from ragcache.store.base import KVStore
from ragcache.types import Chunk

ROOM = 64  # beyond the longest prompt: what a template adds, and the answer


@contextmanager
def open_prompts(settings: Settings, tokens: int) -> Iterator[Prompts]:
    """Of so many tokens at most."""
    with open_vllm(settings, when="sooner", max_model_len=tokens + ROOM, enable_prefix_caching=False) as parts:
        yield VllmPrompts(parts)


class VllmPrompts(Prompts):
    name: ClassVar[str] = "vllm"

    def __init__(self, parts: VllmModel):
        self.parts: VllmModel = parts

    def captured(self, documents: Sequence[Sequence[Chunk]], needed: Sequence[Chunk]) -> KVStore:
        cache = vllm_cache(self.parts.engine, empty_store(self.parts.settings), CONTEXT)
        for _ in capture(cache, self.parts.template.system(), with_cut(documents, needed), needed):
            pass
        return cache.store

    def cache(self, store: KVStore, keep_missed: bool = False) -> ChunkCache:
        self.parts.engine.use_store(store)
        return vllm_cache(self.parts.engine, store, CONTEXT, self.parts.keeper if keep_missed else None)
