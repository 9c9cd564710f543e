"""On the torch engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm

from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from benchmarks.caches import capture, memory_cache
from benchmarks.choices import CONTEXTS
from benchmarks.corpus import CONTEXT, QUESTION, check_room, prompt_chunks, read_texts, split_documents, with_cut
from benchmarks.folder import bench_folder
from benchmarks.output import Row, common_settings, publish
from benchmarks.timing import FLOOR, STOCK, Case, first_token, measured_rows
from benchmarks.ttft import TtftBenchOptions
from ragcache.cache import ChunkCache
from ragcache.linking.baselines import Full
from ragcache.store import open_store
from ragcache.store.findings import DISK, RAM
from ragcache.types import Chunk, Segment


def main(settings: Settings, options: TtftBenchOptions, out: Path) -> None:
    texts = read_texts(options.data)
    if settings.engine == "vllm":
        from benchmarks.ttft.vllm import run as run_vllm

        run_vllm(settings, texts, options, out)
    else:
        run(load_torch_model(settings), texts, options, out)


def run(parts: TorchModel, texts: Sequence[str], options: TtftBenchOptions, out: Path | None) -> list[Row]:
    check_room(parts, max(options.tokens))
    documents = split_documents(parts.template, texts, options.chunk_tokens)
    prompts = [prompt_chunks(parts.template, documents, tokens, QUESTION, options.seed) for tokens in options.tokens]
    rows: list[Row] = []
    with bench_folder(parts.settings.cache_dir) as folder:
        ram, disk = _caches(parts, documents, prompts, folder)
        for chunks in tqdm(prompts, desc="ttft", unit="length"):
            segments = (parts.template.system(), *chunks, parts.template.question(QUESTION))
            rows += _measure(segments, ram, disk, options)
    told = {"context": CONTEXT, "codec": parts.settings.codec}
    publish(common_settings(parts) | options.settings() | told, rows, out)
    return rows


def _caches(
    parts: TorchModel, documents: list[list[Chunk]], prompts: Sequence[Sequence[Chunk]], folder: Path
) -> tuple[ChunkCache, ChunkCache]:
    """The same KV in RAM alone and on disk alone."""
    needed = {chunk.hash: chunk for chunks in prompts for chunk in chunks}
    ram = memory_cache(parts, CONTEXT)
    store = open_store(folder, ram_bytes=0, codec=parts.settings.codec)
    disk = ChunkCache(parts.engine, store, Full(), context_chunks=CONTEXTS[CONTEXT], keep_missed=False)
    system = parts.template.system()
    store.put(ram.system_variant(system))
    variants = capture(ram, system, with_cut(documents, needed.values()), needed.values())
    for variant in tqdm(variants, desc="KV", unit="chunk", leave=False):
        if variant.key.chunk in needed:
            store.put(variant)
    return ram, disk


def _measure(segments: Sequence[Segment], ram: ChunkCache, disk: ChunkCache, options: TtftBenchOptions) -> list[Row]:
    caches = {STOCK: ram, FLOOR: ram}
    caches |= {(RAM, spec): ram for spec in options.linkers} | {(DISK, spec): disk for spec in options.linkers}
    cases: dict[tuple[str, str], Case] = {
        (place, spec): partial(first_token, cache, segments, spec) for (place, spec), cache in caches.items()
    }
    return measured_rows(cases, {STOCK}, options.rounds, options.beside)
