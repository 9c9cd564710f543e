"""Caches of a group's chunks, one per context that they were computed in."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.choices import CONTEXTS
from benchmarks.output import Row
from benchmarks.timing import timed
from ragcache.cache import ChunkCache
from ragcache.engine import PromptRequest
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.generation import Prefilled, prefill
from ragcache.kvgen import LEAD_TOKENS, ChunkIngest, KVGen
from ragcache.linking.baselines import Full
from ragcache.store import open_store
from ragcache.store.codec import open_codec
from ragcache.store.entry import LOSSLESS, EntryReader, at_rest, pack
from ragcache.store.ram import RamTier
from ragcache.types import Chunk, Segment, System, Variant

if TYPE_CHECKING:  # a benchmark of ragcache alone runs where the application's libraries are not
    from app.models.loading import TorchModel


def memory_cache(parts: TorchModel, context: str) -> ChunkCache:
    """An empty cache in RAM. The linker is given with each prompt."""
    store = open_store(codec=parts.settings.codec)
    return ChunkCache(parts.engine, store, Full(), context_chunks=CONTEXTS[context], keep_missed=False)


def prefill_prompt(
    cache: ChunkCache, segments: Sequence[Segment], linker: str | None = None, room: int = 1
) -> Prefilled:
    """A prompt's KV, by the torch engine, with `room` for an answer."""
    return prefill(torch_engine(cache), PromptRequest(segments, cache.chosen(linker), room), cache.source)


def torch_engine(cache: ChunkCache) -> TorchEngine:
    assert isinstance(cache.engine, TorchEngine), cache.engine
    return cache.engine


def capture(
    cache: ChunkIngest,
    system: System,
    documents: Iterable[Sequence[Chunk]],
    needed: Iterable[Chunk],
    revised: Iterable[tuple[Chunk, Chunk]] = (),
    codec: str = LOSSLESS,
) -> Iterator[Variant]:
    """The variants that ingest would store, of the `needed` chunks alone; yields every one that was computed for it.

    `revised`: a chunk of the documents and one that would stand in its place, computed behind the same chunks. `codec`:
    what is kept has lost what a file would lose.
    """
    wanted = {chunk.hash for chunk in needed}
    instead: dict[str, list[Chunk]] = {}
    for chunk, other in revised:
        if other.hash in wanted:
            instead.setdefault(chunk.hash, []).append(other)
    behind = cache.system_variant(system)
    for document in documents:
        before: deque[Variant] = deque(maxlen=cache.kvgen.context_chunks)
        for variant in _variants(cache.kvgen, behind, document, wanted | instead.keys()):
            context = list(before)[len(before) - len(variant.key.context) :]
            others = (cache.kvgen.capture(behind, context, other) for other in instead.get(variant.key.chunk, ()))
            for one in (variant, *others):
                if one.key.chunk in wanted:
                    cache.store.put(_as_read(one, codec))
                yield one
            before.append(variant)


def _as_read(variant: Variant, codec: str) -> Variant:
    """From a file in this codec, which RAM keeps none of."""
    if at_rest(open_codec(codec), variant.key, variant.lineage).lossless(variant.k.dtype):
        return variant
    data = b"".join(pack(variant, open_codec(codec))[1])
    return EntryReader(lambda at, size: memoryview(bytearray(data[at : at + size])), len(data), codec).variant()


def lead(cache: ChunkIngest, system: System, chunks: Iterable[Chunk]) -> None:
    """The variants that an answer captures of chunks which led its prompt, and an ingest does not."""
    behind = cache.system_variant(system)
    for chunk in dict.fromkeys(chunks):
        cache.store.put(cache.kvgen.capture(behind, [], chunk))


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


def forget_pages(folder: Path) -> None:
    """The system's page cache lets go of all files: who reads them next waits for the disk, where the system allows."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_prefill(cache: ChunkCache, system: Variant, chunks: Iterable[Chunk]) -> None:
    """The chunks' tokens in one piece behind System, of which nothing is kept."""
    ids = [token for chunk in chunks for token in chunk.ids]
    engine = torch_engine(cache)
    buffer = engine.buffer(len(system) + len(ids))
    engine.place(buffer, system, 0)
    hidden = engine.compute(ids, range(len(system), len(system) + len(ids)), buffer)
    float(hidden.float().sum())  # on an accelerator: wait until it is done


def measured_capture(
    cache: ChunkCache, system: Variant, chunks: Sequence[Chunk], rounds: int, stored: bool = False
) -> Row:
    """Capture and prefill in turns. `stored`: capture brings the KV into an empty RAM tier, as an ingest would."""

    def capture_all() -> None:
        captured = cache.kvgen.ingest(system, chunks)
        deque(map(RamTier(None).put, captured) if stored else captured, maxlen=0)
        torch_engine(cache).synchronize()

    captures, prefills = [], []
    for turn in range(rounds + 1):
        captured = timed(capture_all)
        prefilled = timed(lambda: plain_prefill(cache, system, chunks))
        if turn:  # the first round does not count
            captures.append(captured)
            prefills.append(prefilled)
    return {
        "tokens": sum(len(chunk) for chunk in chunks),
        "kvgen_s": median(captures),
        "prefill_s": median(prefills),
        "ratio": median(captures) / median(prefills),
    }
