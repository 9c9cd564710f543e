"""First tokens, capture and loading of a Llama with random weights: times, and no quality."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import torch

from benchmarks.caches import measured_capture
from benchmarks.choices import CONTEXTS
from benchmarks.gpu import GpuBenchOptions
from benchmarks.gpu.shapes import MODELS, RandomIds, random_engine
from benchmarks.output import Row
from benchmarks.timing import FLOOR, SERVED, STOCK, Case, first_token, interleaved, measured_rows, median_ttft
from ragcache.cache import ChunkCache
from ragcache.engine.torch.gauge import gauge
from ragcache.linking.baselines import Full
from ragcache.loader.cake import CakeLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import READERS, DiskThreads
from ragcache.rates import Rates
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.findings import DISK, RAM
from ragcache.types import Segment

CHUNK_TOKENS = 200
LINKERS = ("auto", "fast")
CAPTURED = (4096, 16_384)  # tokens of documents: with no more than LEAD_TOKENS, and with a lead variant of each chunk
LEARNT = 8  # prompts of each length, before `SERVED` is measured: it links only where that has been sooner
LIMIT_S = 60.0  # of a reading
CAPTURES = 2  # rounds, each as long as many first tokens
BARE = "bare"  # a prompt without chunks
Prompt = Sequence[Segment]


def measure(name: str, options: GpuBenchOptions) -> Iterator[tuple[str, list[Row]]]:
    """Tables by their names: each again with every length, so that what is there survives what comes."""
    device, rounds, seed = torch.device(options.device), options.rounds, options.seed
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    engine = random_engine(MODELS[name], device, dtype, seed)
    ids = RandomIds(engine.spec.vocabulary, seed)
    codec = "bf16" if dtype is torch.bfloat16 else "raw"
    with (
        tempfile.TemporaryDirectory(prefix="ragcache-gpu-") as folder,
        closing(DiskThreads(READERS, "ragcache-read", LIMIT_S)) as threads,
    ):
        cached = partial(ChunkCache, engine, context_chunks=CONTEXTS["document"], keep_missed=False)
        ram, disk = (
            cached(store, Full(), loader=SequentialLoader(threads))
            for store in (open_store(codec=codec), open_store(Path(folder), ram_bytes=0, codec=codec))
        )
        gauge(engine, rates := Rates())
        served = cached(ram.store, Full(), loader=CakeLoader(threads), rates=rates)
        system = ram.system_variant(ids.system())
        disk.store.put(system)
        first, loading, captured = list[Row](), list[Row](), list[Row]()
        for tokens in MODELS[name].tokens:
            asked = prompts(ids, tokens, ram, disk.store, rounds)
            for prompt in asked[rounds + 1 :]:
                first_token(served, prompt, SERVED[1])
            first += measured_rows(_cases(ram, disk, served, asked), {STOCK, SERVED}, rounds)
            yield "first_token", first
            loading += _loading(ram, disk, asked, rounds)
            yield "loading", loading
    longest, turns = max(MODELS[name].tokens), min(CAPTURES, rounds)
    for tokens in sorted({min(tokens, longest) for tokens in CAPTURED}):
        row = measured_capture(ram, system, ids.chunks(tokens, CHUNK_TOKENS), turns, stored=True)
        captured.append(dict(row) | {"rounds": turns})
        yield "capture", captured


def prompts(
    ids: RandomIds, tokens: int, ram: ChunkCache, disk: KVStore, rounds: int, learnt: int = LEARNT
) -> list[Prompt]:
    """For the warm-up, each round and what is learnt a prompt of so many tokens: chunks that were captured in one
    document, in an order and with a question that no other has, so that nothing is measured that an earlier one has
    left behind.
    """
    system, questions = ids.system(), [ids.question(turn=turn) for turn in range(rounds + 1 + learnt)]
    chunks = ids.chunks(tokens - len(system) - len(questions[0]), CHUNK_TOKENS)
    for variant in ram.ingest(system, chunks):
        disk.put(variant)
    order = random.Random(tokens)
    return [[system, *order.sample(chunks, len(chunks)), question] for question in questions]


def _cases(
    ram: ChunkCache, disk: ChunkCache, served: ChunkCache, prompts: Sequence[Prompt]
) -> dict[tuple[str, str], Case]:
    caches = {STOCK: ram, FLOOR: ram, SERVED: served}
    caches |= {(place, spec): cache for place, cache in ((RAM, ram), (DISK, disk)) for spec in LINKERS}
    return {case: _case(cache, prompts, case[1]) for case, cache in caches.items()}


def _case(cache: ChunkCache, prompts: Sequence[Prompt], linker: str) -> Case:
    """Each call answers the next prompt, so that a round has the same one for all cases."""
    turns = iter(prompts)
    return lambda: first_token(cache, next(turns), linker)


def _loading(ram: ChunkCache, disk: ChunkCache, prompts: Sequence[Prompt], rounds: int) -> list[Row]:
    """What placing all chunks adds to the first token of a prompt without any."""
    bare = [[prompt[0], prompt[-1]] for prompt in prompts]
    cases = {
        BARE: _case(ram, bare, "naive"),
        RAM: _case(ram, prompts, "naive"),
        DISK: _case(disk, prompts, "naive"),
    }
    reports = interleaved(cases, rounds)
    return [_loaded(place, reports[place], median_ttft(reports[BARE]), ram) for place in (RAM, DISK)]


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
