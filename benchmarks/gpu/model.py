"""First tokens, capture and loading of a Llama with random weights: times, and no quality."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.caches import measured_capture
from benchmarks.choices import CONTEXTS
from benchmarks.gpu import GpuBenchOptions
from benchmarks.gpu.shapes import MODELS, RandomIds, random_engine
from benchmarks.output import Row
from benchmarks.timing import FLOOR, STOCK, Case, first_token, interleaved, measured_rows, median_ttft
from ragcache.cache import ChunkCache
from ragcache.linking.full import Full
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Chunk, Segment

CHUNK_TOKENS = 200
LINKERS = ("auto", "fast")
CAPTURED = 4096  # tokens at most of the document whose capture is measured
BARE = ("bare", "full")  # a prompt without chunks


def measure(name: str, options: GpuBenchOptions) -> Iterator[tuple[str, list[Row]]]:
    """Tables by their names, each as soon as it is there."""
    device, rounds, seed = torch.device(options.device), options.rounds, options.seed
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    engine = random_engine(name, device, dtype, seed)
    ids = RandomIds(engine.spec.vocabulary, seed)
    codec = "bf16" if dtype is torch.bfloat16 else "raw"
    with tempfile.TemporaryDirectory(prefix="ragcache-gpu-") as folder:
        ram, disk = (
            ChunkCache(engine, store, Full(), context_chunks=CONTEXTS["document"], keep_missed=False)
            for store in (open_store(None, None, None, codec), open_store(Path(folder), 0, None, codec))
        )
        system = ram.system_variant(ids.system())
        disk.store.put(system)
        length = min(CAPTURED, max(MODELS[name].tokens))
        yield "capture", [measured_capture(ram, system, ids.chunks(length, CHUNK_TOKENS), rounds)]
        first, loading = list[Row](), list[Row]()
        for tokens in MODELS[name].tokens:
            segments = _prompt(ids, tokens, ram, disk.store)
            first += measured_rows(_cases(ram, disk, segments), {STOCK}, rounds)
            loading += _loading(ram, disk, segments, rounds)
        yield "first_token", first
        yield "loading", loading


def _prompt(ids: RandomIds, tokens: int, ram: ChunkCache, disk: KVStore) -> list[Segment]:
    """A prompt of so many tokens, whose chunks were captured in one document and come in another order."""
    system, question = ids.system(), ids.question()
    chunks = ids.chunks(tokens - len(system) - len(question), CHUNK_TOKENS)
    for variant in ram.ingest(system, chunks):
        disk.put(variant)
    shuffled: Sequence[Chunk] = random.Random(tokens).sample(chunks, len(chunks))
    return [system, *shuffled, question]


def _cases(ram: ChunkCache, disk: ChunkCache, segments: Sequence[Segment]) -> dict[tuple[str, str], Case]:
    caches = {STOCK: ram, FLOOR: ram}
    caches |= {(place, spec): cache for place, cache in (("ram", ram), ("disk", disk)) for spec in LINKERS}
    return {case: partial(first_token, cache, segments, case[1]) for case, cache in caches.items()}


def _loading(ram: ChunkCache, disk: ChunkCache, segments: Sequence[Segment], rounds: int) -> list[Row]:
    """What placing all chunks adds to the first token of a prompt without any."""
    bare = [segments[0], segments[-1]]
    cases: Mapping[str, Case] = {
        BARE[0]: partial(first_token, ram, bare, "naive"),
        "ram": partial(first_token, ram, segments, "naive"),
        "disk": partial(first_token, disk, segments, "naive"),
    }
    reports = interleaved(cases, rounds)
    return [_loaded(place, reports[place], median_ttft(reports[BARE[0]]), ram) for place in ("ram", "disk")]


def _loaded(place: str, reports: Sequence[Report], bare: float, cache: ChunkCache) -> Row:
    tokens = sum(chunk.tokens for chunk in reports[0].chunks)
    seconds, nbytes = median_ttft(reports) - bare, tokens * cache.engine.spec.token_bytes
    return {
        "place": place,
        "tokens": tokens,
        "kv_mb": nbytes / 1e6,
        "ttft_s": median_ttft(reports),
        "bare_s": bare,
        "gb_per_s": nbytes / 1e9 / seconds if seconds > 0 else None,
    }
