"""On the torch engine: every case through the cache, the disk throttled by a token bucket, the engine by pauses."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from tqdm import tqdm

from app.models.loading import LOAD_LIMIT_S, TorchModel, load_torch_model
from app.settings import Settings
from benchmarks.caches import capture, memory_cache
from benchmarks.cake import EXACT, PAPER_RATIO, CakeBenchOptions
from benchmarks.corpus import prompt_chunks, read_texts, split_documents, with_cut
from benchmarks.output import Row, common_settings, publish
from benchmarks.timing import Case, first_token, interleaved, median_ttft, timed
from benchmarks.ttft.measurement import CONTEXT, QUESTION, check_room
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.kvgen import KVGen
from ragcache.loader import Loader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import READERS, DiskThreads
from ragcache.loader.throttle import Throttle
from ragcache.planning import plan_prompt
from ragcache.policy import Rates
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Chunk, Segment

CAKE, LOAD, COMPUTE = MODES = ("cake", "load", "compute")
PATIENCE = 100 * LOAD_LIMIT_S  # the slowest disk of the grid is slow on purpose
BITS = {"bf16": 16, "int8": 8}


def main(settings: Settings, options: CakeBenchOptions, out: Path) -> None:
    run(load_torch_model(settings), read_texts(options.data), options, out)


def run(parts: TorchModel, texts: Sequence[str], options: CakeBenchOptions, out: Path | None) -> list[Row]:
    check_room(parts, max(options.tokens))
    rows: list[Row] = []
    documents = split_documents(parts.template, texts, options.chunk_tokens)
    parts.settings.cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parts.settings.cache_dir, prefix="bench-") as folder:
        for tokens in options.tokens:
            chunks = prompt_chunks(parts.template, documents, tokens, QUESTION, options.seed)
            for kind in options.kinds:
                store = open_store(Path(folder, f"{kind}-{tokens}"), 0, None, parts.settings.codec)
                captured(parts, kind, documents, chunks, store)
                prompt = ColdPrompt(parts, kind, chunks, store, options)
                grid = [(speed, share) for share in options.utilisations for speed in options.bandwidths]
                for speed, share in tqdm(grid, desc=f"cake, {kind}", unit="case"):
                    rows += prompt.rows(speed, share)
    publish(common_settings(parts) | options.told() | {"context": CONTEXT, "codec": parts.settings.codec}, rows, out)
    return rows


def captured(
    parts: TorchModel, kind: str, documents: Sequence[Sequence[Chunk]], chunks: Sequence[Chunk], store: KVStore
) -> None:
    """The KV of the chunks: each behind all before it in the prompt, or behind its neighbours in its document."""
    system = parts.template.system()
    if kind == EXACT:
        kvgen = KVGen(parts.engine, len(chunks))
        behind = kvgen.system(system)
        variants = kvgen.document(behind, list(dict.fromkeys(chunks)))
        store.put(behind)
    else:
        ram = memory_cache(parts, CONTEXT)
        store.put(ram.system_variant(system))
        variants = capture(ram, system, with_cut(documents, chunks), chunks)
    for variant in variants:
        store.put(variant)


@dataclass
class ColdPrompt:
    """One prompt whose KV lies on a disk."""

    parts: TorchModel
    kind: str
    chunks: Sequence[Chunk]
    store: KVStore
    options: CakeBenchOptions

    def __post_init__(self) -> None:
        template = self.parts.template
        self.segments: list[Segment] = [template.system(), *self.chunks, template.question(QUESTION)]
        self.linker = "naive" if self.kind == EXACT else self.options.linker
        plan = plan_prompt(self.segments, self.parts.engine.spec.fingerprint, self.store)
        self.nbytes = [chunk.candidates[0].info.nbytes for chunk in plan.chunks]
        self.computes = self._measured_computes()
        self.tail = self._measured_tail()

    def rows(self, speed: float, share: float) -> list[Row]:
        """Of one bandwidth of the paper, at one utilisation."""
        whole = sum(self.computes)
        bytes_per_s = sum(self.nbytes) / (whole * PAPER_RATIO / speed)
        loaders: Mapping[str, Loader] = {  # what one gives up may still be read when the next begins
            CAKE: CakeLoader(DiskThreads(READERS, "ragcache-read", PATIENCE), pace=Throttle(bytes_per_s)),
            LOAD: SequentialLoader(DiskThreads(READERS, "ragcache-read", PATIENCE), pace=Throttle(bytes_per_s)),
            COMPUTE: SequentialLoader(),
        }
        caches = {mode: self._cache(loader, Rates() if mode == CAKE else None) for mode, loader in loaders.items()}
        linkers = {CAKE: self.linker, LOAD: self.linker, COMPUTE: "full"}
        cases: dict[str, Case] = {
            mode: partial(first_token, caches[mode], self.segments, linkers[mode]) for mode in MODES
        }
        with shared(self.parts.engine, share):
            reports = interleaved(cases, self.options.rounds, warm_ups=2)
        for loader in loaders.values():
            loader.close()
        best = self._optimum(bytes_per_s, share)
        spec = self.parts.engine.spec
        buffer = 4 * spec.layers * spec.kv_heads * spec.head_dim * sum(map(len, self.segments)) / 1e6
        tokens = sum(map(len, self.chunks))
        return [
            {
                "mode": mode,
                "engine": self.parts.engine.name,
                "kind": self.kind,
                "tokens": found[0].prompt_tokens,
                "bandwidth_gbps": speed,
                "utilisation": share,
                "bits": BITS.get(self.parts.settings.codec),
                "chunk": self.options.chunk_tokens,
                "seconds": median_ttft(found),
                "efficiency": best / median_ttft(found) if mode == CAKE else None,
                "computed_share": median(
                    sum(len(one) for one, told in zip(self.chunks, report.chunks, strict=True) if told.tier == COMPUTED)
                    / tokens
                    for report in found
                ),
                "peak_kv_mb": buffer,
            }
            for mode, found in reports.items()
        ]

    def _cache(self, loader: Loader, rates: Rates | None = None) -> ChunkCache:
        return ChunkCache(self.parts.engine, self.store, "naive", keep_missed=False, loader=loader, rates=rates)

    def _measured_computes(self) -> list[float]:
        """Seconds of each chunk by itself, behind those before it."""
        engine, cache = self.parts.engine, self._cache(SequentialLoader())
        system = cache.system_variant(self.parts.template.system())
        buffer = engine.buffer(sum(map(len, self.segments)))
        engine.place(buffer, system, 0)
        rounds: list[list[float]] = []
        for _ in range(self.options.rounds):
            start, found = len(system), list[float]()
            for chunk in self.chunks:
                span = range(start, start + len(chunk))
                found.append(timed(partial(engine.compute, chunk.ids, span, buffer)))
                start = span.stop
            rounds.append(found)
        return [median(one) for one in zip(*rounds, strict=True)]

    def _measured_tail(self) -> float:
        """Seconds of all that follows when nothing has to be waited for."""
        cache = self._cache(SequentialLoader())
        case = partial(first_token, cache, self.segments, self.linker)
        return median_ttft(interleaved({LOAD: case}, self.options.rounds)[LOAD])

    def _optimum(self, bytes_per_s: float, share: float) -> float:
        """Seconds with the best meeting point, of what each block takes by itself: the System segment, both sides at
        once, then the question with its probe and repair.
        """
        loads = [nbytes / bytes_per_s for nbytes in self.nbytes]
        fronts = [0.0, *accumulate(one / share for one in self.computes)]
        backs = [sum(loads[place:]) for place in range(len(loads) + 1)]
        return min(map(max, zip(fronts, backs, strict=True))) + self.tail / share


@contextmanager
def shared(engine: TorchEngine, share: float) -> Iterator[None]:
    """The engine computes for so much of the time alone: after each forward others would have their turn."""
    forward = engine.forward

    def paused(*given: Any, **named: Any) -> Any:
        started = perf_counter()
        found = forward(*given, **named)
        sleep((perf_counter() - started) * (1 / share - 1))
        return found

    engine.forward = paused  # type: ignore[method-assign]
    try:
        yield
    finally:
        engine.forward = forward  # type: ignore[method-assign]
