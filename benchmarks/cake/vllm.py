"""Inside vLLM: linked chunks that are all loaded first, against those whose upper layers come while the lower ones are
computed over, and those that are read while their request waits in vLLM's queue. Where its front is computed meanwhile,
the engine's own steps decide: see the torch engine's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from tqdm import tqdm

from app.models.loading import VllmModel
from app.settings import Settings
from benchmarks.cake import ASYNC, CHUNKS, EXACT, LAYER, MODEL, SYNC, THROTTLED, CakeBenchOptions
from benchmarks.cake.conditions import ToldLoader
from benchmarks.cake.costs import paper_seconds_per_byte
from benchmarks.cake.prompt import AGAINST, COMPUTE, LOADED, LOADERS, PATIENCE, ColdStore, computed_share, stored_bits
from benchmarks.corpus import CONTEXT, QUESTION, holding, prompt_chunks, split_documents
from benchmarks.folder import bench_folder
from benchmarks.output import Row, Value, common_settings, publish
from benchmarks.timing import Case, interleaved, median_ttft, one_token, paired
from benchmarks.vllm_model import empty_store, open_vllm, vllm_cache
from ragcache.errors import ConfigError
from ragcache.kvgen import KVGen
from ragcache.loader import Loader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import READERS, DiskThreads
from ragcache.loader.throttle import Throttle
from ragcache.planning import plan_prompt
from ragcache.report import FULL, Report
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, Variant, VariantInfo

ROOM = 64  # tokens of an answer, and what a template adds


def check(options: CakeBenchOptions) -> None:
    """Raises ConfigError."""
    others = {
        "--kinds": options.kinds != (CHUNKS,),
        "--utilisations": options.utilisations != (1.0,),
        "--traces": bool(options.traces),
        "--shapes": options.shapes != (MODEL,),
        "--disk": options.disk != THROTTLED,
        "--plot": options.plot is not None,
    }
    if wrong := [flag for flag, given in others.items() if given]:
        raise ConfigError(
            f"inside vLLM {', '.join(wrong)} cannot be chosen so: give --kinds chunks --utilisations 1, "
            "or --engine torch"
        )


def run(settings: Settings, texts: Sequence[str], options: CakeBenchOptions, out: Path | None) -> list[Row]:
    check(options)
    length = max(options.tokens) + ROOM
    rows: list[Row] = []
    one: dict[str, Any] = {"max_num_seqs": 1} if ASYNC in options.preload else {}  # others wait
    with open_vllm(settings, max_model_len=length, max_num_batched_tokens=length, **one) as parts:
        for prompt in _prompts(parts, texts, options):
            for speed in tqdm(options.bandwidths, desc="cake, vllm", unit="case"):
                rows += prompt.rows(speed)
        told = common_settings(parts)
    hidden = [name for name in ("codec", *AGAINST) if len({row[name] for row in rows}) == 1]
    publish(told | options.settings() | {"context": CONTEXT}, rows, out, hidden=hidden)
    return rows


def _prompts(parts: VllmModel, texts: Sequence[str], options: CakeBenchOptions) -> Iterator[VllmPrompt]:
    for tokens in options.tokens:
        for each in options.chunk_tokens:
            documents = split_documents(parts.template, ["\n\n".join(texts)], each)
            chunks = prompt_chunks(parts.template, documents, tokens, QUESTION, options.seed)
            for codec in options.codecs:
                with bench_folder(parts.settings.cache_dir) as folder:
                    store = _stored(parts, documents, chunks, codec, folder)
                    yield VllmPrompt(parts, chunks, store, each, options)


def _stored(
    parts: VllmModel, documents: Sequence[Sequence[Chunk]], chunks: Sequence[Chunk], codec: str, folder: Path
) -> ColdStore:
    disk, ram = open_store(folder, ram_bytes=0, codec=codec), open_store(codec=codec)
    for variant in captured(parts, documents, chunks):
        disk.put(variant)
        ram.put(variant)
    return ColdStore(disk, ram, folder, codec)


def captured(
    parts: VllmModel, documents: Sequence[Sequence[Chunk]], chunks: Sequence[Chunk], kind: str = CHUNKS
) -> Iterator[Variant]:
    """The System segment's KV and the chunks': each behind its neighbours in its document, or all before it in the
    prompt.
    """
    system, cache = parts.template.system(), vllm_cache(parts.engine, empty_store(parts.settings), CONTEXT)
    behind = cache.system_variant(system)
    yield behind
    if kind == EXACT:
        yield from KVGen(parts.engine, len(chunks)).document(behind, list(dict.fromkeys(chunks)))
    else:
        for document in holding(documents, chunks):
            yield from cache.ingest(system, document)


class VllmPrompt:
    """One prompt, and what it takes linked from RAM and computed."""

    def __init__(
        self, parts: VllmModel, chunks: Sequence[Chunk], store: ColdStore, each: int, options: CakeBenchOptions
    ):
        self._parts, self._chunks, self._store, self._each, self._options = parts, chunks, store, each, options
        self._cache, spec = vllm_cache(parts.engine, store.ram, CONTEXT), parts.engine.spec
        self._segments: list[Segment] = [parts.template.system(), *chunks, parts.template.question(QUESTION)]
        parts.engine.use_store(store.ram)
        cases = {linker: partial(self._asked, linker) for linker in (options.linker, FULL)}
        self._linked, plain = map(median_ttft, interleaved(cases, options.rounds).values())
        self._seconds_per_byte = paper_seconds_per_byte(plain, spec, spec.kv_heads, chunks)
        self.bits = stored_bits(store.folder, [info.key for info in self._infos()])

    def _infos(self) -> Iterator[VariantInfo]:
        plan = plan_prompt(self._segments, self._parts.engine.spec.fingerprint, self._store.disk)
        yield from (chunk.candidates[0].info for chunk in plan.chunks)

    def rows(self, speed: float) -> list[Row]:
        bytes_per_s = speed / self._seconds_per_byte
        self._parts.engine.use_store(self._store.disk)
        with ExitStack() as ending:
            cases = {preload: self._case(preload, bytes_per_s, ending) for preload in self._options.preload}
            found = interleaved({**cases, COMPUTE: partial(self._asked, FULL)}, self._options.rounds)
        return [self._row(name, speed, found) for name in found]

    def _case(self, preload: str, bytes_per_s: float, ending: ExitStack) -> Case:
        pace, threads = Throttle(bytes_per_s), DiskThreads(READERS, "ragcache-read", PATIENCE)
        loader: Loader
        if preload == ASYNC:  # as the worker's own: others read nothing ahead
            loader = CakeLoader(threads, pace=pace, claims=False)
        else:
            loader = LOADERS[preload == LAYER, LOADED](threads, pace=pace)
        loader = ToldLoader(loader, bytes_per_s, self._linked) if preload == LAYER else loader
        ending.callback(loader.close)
        wait = self._options.wait * sum(info.nbytes for info in self._infos()) / bytes_per_s

        def asked() -> Report:
            self._parts.engine.use_loader(loader)
            pace.restart()
            return self._queued(wait) if preload == ASYNC else self._asked(self._options.linker)

        return asked

    def _asked(self, linker: str) -> Report:
        self._parts.engine.forget_prefixes()
        return one_token(self._cache, self._segments, linker)

    def _queued(self, wait: float) -> Report:
        """Behind an answer that ends when it has waited so long; its first token counts from then."""
        self._parts.engine.forget_prefixes()
        before = self._cache.generate(self._segments[-1:], max_tokens=max(self._options.tokens), linker=FULL)
        next(iter(before))
        with ThreadPoolExecutor(1) as pool:
            asked = perf_counter()
            answer = pool.submit(one_token, self._cache, self._segments, self._options.linker)
            sleep(wait)
            before.close()
            waited = perf_counter() - asked
            report = answer.result()
        return replace(report, ttft_s=report.ttft_s - waited)

    def _row(self, name: str, speed: float, found: Mapping[str, Sequence[Report]]) -> Row:
        reports, computes = found[name], name == COMPUTE
        row: dict[str, Value] = {
            "mode": COMPUTE if computes else LOADED,
            "engine": self._parts.engine.name,
            "kind": CHUNKS,
            "tokens": reports[0].prompt_tokens,
            "bandwidth_gbps": speed,
            "utilisation": 1.0,
            "bits": self.bits,
            "chunk": self._each,
            "seconds": median_ttft(reports),
            "efficiency": None,
            "computed_share": median(computed_share(one, self._chunks) for one in reports),
            "peak_kv_mb": None,
            "preload": SYNC if computes else name,
            "trace": None,
            "shape": MODEL,
            "codec": self._store.codec,
            **dict.fromkeys(AGAINST),
        }
        if name in (LAYER, ASYNC) and SYNC in found:
            mine, others = ([one.ttft_s for one in some] for some in (reports, found[SYNC]))
            ratio, high = paired(mine, others, self._options.seed)
            row |= {"over_load": 1 / ratio, "against_better": ratio, "against_better_high": high}
        return row
