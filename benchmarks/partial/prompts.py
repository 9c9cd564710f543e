"""What is asked of either engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import ClassVar

from app.models.loading import LoadedModel
from ragcache.cache import ChunkCache
from ragcache.report import Report
from ragcache.store.base import KVStore
from ragcache.types import Chunk, Segment


class Prompts(ABC):
    """An engine, and caches over it that link where it pays."""

    name: ClassVar[str]
    parts: LoadedModel

    @abstractmethod
    def captured(self, documents: Sequence[Sequence[Chunk]], needed: Sequence[Chunk]) -> KVStore:
        """KV of the System segment and of these chunks, in RAM."""

    @abstractmethod
    def cache(self, store: KVStore, keep_missed: bool = False) -> ChunkCache:
        """With the keeper of the parts."""

    def first_token(
        self, store: KVStore, segments: Sequence[Segment], linker: str, keep_missed: bool = False
    ) -> Report:
        with closing(self.cache(store, keep_missed).generate(segments, max_tokens=1, linker=linker)) as generation:
            list(generation)
            return generation.report
