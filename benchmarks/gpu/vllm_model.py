"""First tokens inside vLLM, started as it starts by default, of a Llama with random weights: times, and no quality. And
how many requests it answers when several ask at once.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.choices import CONTEXTS
from benchmarks.gpu import VLLM, GpuBenchOptions
from benchmarks.gpu.model import CHUNK_TOKENS, LINKERS, Prompt, prompts
from benchmarks.gpu.shapes import MODELS, RandomIds
from benchmarks.gpu.vllm import model_folder, open_vllm, use
from benchmarks.output import Row
from benchmarks.timing import EXACT, FLOOR, STOCK, Case, measured_rows, one_token, timed
from ragcache.cache import ChunkCache
from ragcache.report import FULL, Report
from ragcache.store import open_store
from ragcache.store.findings import DISK, RAM
from ragcache.types import Chunk, System, Text

if TYPE_CHECKING:  # vLLM is not everywhere
    from ragcache.engine.vllm.engine import VllmEngine

KV_BYTES = {"tiny": 64_000_000, "1b": 16 << 30, "8b": 48 << 30}
SERVED_TOKENS = 2048  # of a prompt that several ask
POPULATION = 64  # chunks that they ask about
ANSWER_TOKENS = 32
CLIENTS = (1, 8, 32)
TURNS = 2  # of each linker with so many clients


def measure(part: str, options: GpuBenchOptions) -> Iterator[tuple[str, list[Row]]]:
    """Tables by their names, again with every length."""
    name = part.removeprefix(VLLM)
    device, shape = torch.device(options.device), MODELS[name]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    codec = "bf16" if dtype is torch.bfloat16 else "raw"
    with (
        model_folder(shape, device, dtype, options.seed) as folder,
        open_vllm(folder, shape, dtype, codec, kv_cache_memory_bytes=KV_BYTES[name]) as engine,
        tempfile.TemporaryDirectory(prefix="ragcache-gpu-") as kept,
    ):
        yield from _measured(engine, shape.tokens, options, Path(kept), codec)


def _measured(
    engine: VllmEngine, lengths: Sequence[int], options: GpuBenchOptions, kept: Path, codec: str
) -> Iterator[tuple[str, list[Row]]]:
    ids = RandomIds(engine.spec.vocabulary, options.seed)
    cached = partial(use, engine, context_chunks=CONTEXTS["document"])
    ram, disk = cached(open_store(codec=codec)), cached(open_store(kept, ram_bytes=0, codec=codec))
    disk.store.put(ram.system_variant(ids.system()))
    first, stages, captured = list[Row](), list[Row](), list[Row]()
    for tokens in lengths:
        engine.use_store(ram.store)
        started = perf_counter()
        asked = prompts(ids, tokens, ram, disk.store, options.rounds, 0)
        seconds, told = perf_counter() - started, Told()
        first += measured_rows(_cases(engine, ram, disk, asked, told), {STOCK, (EXACT, FULL)}, options.rounds)
        yield "first_token", first
        stages += told.rows()
        yield "stages", stages
        captured.append(
            {
                "tokens": tokens,
                "kvgen_s": seconds,
                "prefill_s": next(row["ttft_s"] for row in first if row["tokens"] == tokens),
            }
        )
        yield "capture", captured
    served, tokens = list[Row](), min(SERVED_TOKENS, max(lengths) - 2 * ANSWER_TOKENS)
    for clients in CLIENTS:
        served += _served(engine, ram, ids, clients, tokens, options.seconds)
        yield "served", served


class Told:
    """What vLLM tells of each part of an answer: the seconds of a host, which does not wait for its device."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], list[Report]] = {}

    def note(self, name: tuple[str, str], report: Report) -> Report:
        self._reports.setdefault(name, []).append(report)
        return report

    def rows(self) -> Iterator[Row]:
        """The first of each case has warmed up."""
        for (case, linker), reports in self._reports.items():
            for stage in sorted({stage for report in reports for stage in report.seconds}):
                seconds = median(report.seconds.get(stage, 0.0) for report in reports[1:])
                yield {
                    "case": case,
                    "tokens": reports[0].prompt_tokens,
                    "linker": linker,
                    "stage": stage,
                    "seconds": seconds,
                }


def _cases(
    engine: VllmEngine, ram: ChunkCache, disk: ChunkCache, asked: Sequence[Prompt], told: Told
) -> dict[tuple[str, str], Case]:
    names = [STOCK, (EXACT, FULL), FLOOR, *((place, spec) for place in (RAM, DISK) for spec in LINKERS)]
    return {name: _case(engine, disk if name[0] == DISK else ram, asked, name, told) for name in names}


def _case(engine: VllmEngine, cache: ChunkCache, asked: Sequence[Prompt], name: tuple[str, str], told: Told) -> Case:
    turns = iter(asked)

    def answered() -> Report:
        engine.use_store(cache.store)
        if name[0] != EXACT:  # it comes right after stock, whose blocks it finds
            engine.forget_prefixes()
        return told.note(name, one_token(cache, next(turns), name[1]))

    return answered


def _served(engine: VllmEngine, cache: ChunkCache, ids: RandomIds, clients: int, tokens: int, each: float) -> list[Row]:
    """In turns of so many seconds: who has an answer asks again. vLLM's prefix cache holds what it can for all."""
    system, chunks = ids.system(), ids.chunks(min(POPULATION * CHUNK_TOKENS, tokens), CHUNK_TOKENS)
    engine.use_store(cache.store)
    for _ in cache.ingest(system, chunks):
        pass
    found: dict[str, list[tuple[float, float]]] = {linker: [] for linker in (FULL, *LINKERS, FLOOR[1])}
    seconds: dict[str, float] = dict.fromkeys(found, 0.0)
    for turn in range(TURNS):
        for linker in found:
            engine.forget_prefixes()
            asking = _Clients(cache, system, chunks, linker, ids, tokens)
            seconds[linker] += timed(partial(asking.run, clients, turn, each))
            found[linker] += asking.answered
    return [
        {
            "linker": linker,
            "clients": clients,
            "requests": len(told),
            "per_s": len(told) / seconds[linker],
            "ttft_s": median(first for first, _ in told),
            "ttft_p99_s": float(np.percentile([first for first, _ in told], 99)),
            "token_s": median(rest for _, rest in told),
        }
        for linker, told in found.items()
    ]


class _Clients:
    def __init__(
        self, cache: ChunkCache, system: System, chunks: Sequence[Chunk], linker: str, ids: RandomIds, tokens: int
    ):
        self._cache, self._system, self._chunks, self._linker, self._ids = cache, system, chunks, linker, ids
        self._tokens = tokens  # of a prompt
        self.answered: list[tuple[float, float]] = []  # seconds to the first token, and of each that follows

    def run(self, clients: int, turn: int, seconds: float) -> None:
        until = perf_counter() + seconds
        threads = [threading.Thread(target=self._ask, args=(1000 * turn + number, until)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(self, number: int, until: float) -> None:
        order = random.Random(number)
        while perf_counter() < until:
            question = Text(tuple(order.choices(range(self._ids.vocabulary), k=16)))
            drawn = order.sample(self._chunks, self._tokens // CHUNK_TOKENS)
            started, first, tokens = perf_counter(), 0.0, 0
            for _ in self._cache.generate(
                [self._system, *drawn, question], max_tokens=ANSWER_TOKENS, linker=self._linker
            ):
                first, tokens = first or perf_counter() - started, tokens + 1
            self.answered.append((first, (perf_counter() - started - first) / max(1, tokens - 1)))
