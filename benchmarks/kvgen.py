"""`ragcache bench kvgen`: capturing a document's KV, chunk by chunk in its context, against a plain prefill of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path
from statistics import median
from time import perf_counter

from tqdm import tqdm

from app.loading import TorchModel
from benchmarks.caches import CONTEXTS, memory_cache
from benchmarks.corpus import fill, split_documents
from benchmarks.output import common_settings, publish
from benchmarks.table import Row
from ragcache.cache import ChunkCache
from ragcache.errors import ConfigError
from ragcache.types import Chunk, Variant

COLUMNS = ("tokens", "kvgen_s", "prefill_s", "ratio")
CONTEXT = "document"


@dataclass(frozen=True)
class KvgenBenchOptions:
    tokens: tuple[int, ...]
    chunk_tokens: int
    rounds: int


def run(parts: TorchModel, texts: Sequence[str], options: KvgenBenchOptions, out: Path | None) -> list[Row]:
    room = parts.engine.spec.max_tokens - len(parts.template.system())
    if max(options.tokens) > room:
        raise ConfigError(f"--tokens {max(options.tokens)}: behind the System segment the model's context has {room}")
    cache = memory_cache(parts, CONTEXT)
    system = cache.system_variant(parts.template.system())
    pool = list(chain.from_iterable(split_documents(parts.template, texts, options.chunk_tokens)))
    rows = [
        _measure(cache, system, fill(cycle(pool), tokens), options.rounds)
        for tokens in tqdm(options.tokens, desc="kvgen", unit="length")
    ]
    context = {"context_chunks": CONTEXTS[CONTEXT]}
    publish(common_settings(parts) | vars(options) | context, rows, COLUMNS, out)
    return rows


def _measure(cache: ChunkCache, system: Variant, chunks: Sequence[Chunk], rounds: int) -> Row:
    captures, prefills = [], []
    for turn in range(rounds + 1):
        captured, prefilled = _capture(cache, system, chunks), _prefill(cache, system, chunks)
        if turn:  # the first round does not count
            captures.append(captured)
            prefills.append(prefilled)
    return {
        "tokens": sum(len(chunk) for chunk in chunks),
        "kvgen_s": median(captures),
        "prefill_s": median(prefills),
        "ratio": median(captures) / median(prefills),
    }


def _capture(cache: ChunkCache, system: Variant, chunks: Sequence[Chunk]) -> float:
    started = perf_counter()
    for _ in cache.kvgen.ingest(system, chunks):
        pass
    return perf_counter() - started


def _prefill(cache: ChunkCache, system: Variant, chunks: Sequence[Chunk]) -> float:
    """The same tokens in one piece, behind the same System segment, without keeping anything."""
    ids = [token for chunk in chunks for token in chunk.ids]
    started = perf_counter()
    buffer = cache.engine.buffer(len(system) + len(ids))
    cache.engine.place(buffer, system, 0)
    hidden = cache.engine.compute(ids, range(len(system), len(system) + len(ids)), buffer)
    float(hidden.float().sum())  # on an accelerator: wait until it is done
    return perf_counter() - started
