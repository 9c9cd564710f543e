"""Caches of a group's chunks, one per context that they were computed in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from app.loading import TorchModel
from ragcache.cache import ChunkCache
from ragcache.errors import ConfigError
from ragcache.ingest import ChunkIngest
from ragcache.kvgen import LEAD_TOKENS, KVGen
from ragcache.linking.full import Full
from ragcache.store import open_store
from ragcache.types import Chunk, System, Variant

# How many chunks before it in its document each chunk is computed behind.
CONTEXTS: Mapping[str, int] = {"alone": 0, "document": 3}


def check_context(name: str) -> str:
    if name not in CONTEXTS:
        raise ConfigError(f"unknown context {name!r}: choose from {', '.join(CONTEXTS)}")
    return name


def memory_cache(parts: TorchModel, context: str) -> ChunkCache:
    """An empty cache in RAM. The linker is given with each prompt."""
    store = open_store(None, None, None, parts.settings.codec)
    return ChunkCache(parts.engine, store, Full(), context_chunks=CONTEXTS[check_context(context)], keep_missed=False)


def capture(
    cache: ChunkIngest, system: System, documents: Iterable[Sequence[Chunk]], needed: Iterable[Chunk]
) -> Iterator[Variant]:
    """The variants that ingest would store, of the `needed` chunks alone; yields every one that was computed for it."""
    wanted = {chunk.hash for chunk in needed}
    behind = cache.system_variant(system)
    for document in documents:
        for variant in _variants(cache.kvgen, behind, document, wanted):
            if variant.key.chunk in wanted:
                cache.store.put(variant)
            yield variant


def _variants(kvgen: KVGen, behind: Variant, document: Sequence[Chunk], wanted: set[str]) -> Iterator[Variant]:
    yield from kvgen.document(behind, _as_far_as(document, wanted, kvgen.context_chunks))
    if kvgen.context_chunks and sum(len(chunk) for chunk in document) >= LEAD_TOKENS:
        for chunk in document[1:]:
            if chunk.hash in wanted:
                yield kvgen.capture(behind, [], chunk)


def _as_far_as(document: Sequence[Chunk], wanted: set[str], context_chunks: int) -> Sequence[Chunk]:
    """Chunks that are wanted or that a wanted one's KV depends on: with a context, all before it."""
    if context_chunks == 0:
        return [chunk for chunk in document if chunk.hash in wanted]
    places = [place for place, chunk in enumerate(document) if chunk.hash in wanted]
    return document[: places[-1] + 1] if places else []
