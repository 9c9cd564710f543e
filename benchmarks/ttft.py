"""`ragcache bench ttft`: time to the first token of prompts of given lengths.

From disk means from files that this process has just written, so the system's page cache holds them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from app.loading import TorchModel
from benchmarks.caches import CONTEXTS, capture, memory_cache
from benchmarks.choices import known_settings
from benchmarks.corpus import prompt_chunks, split_documents, with_cut
from benchmarks.output import common_settings, publish
from benchmarks.table import Row
from benchmarks.timing import Case, beside, check_tiers, first_token, interleaved, median_ttft
from ragcache.cache import ChunkCache
from ragcache.engine.vllm.job import PREFIX
from ragcache.errors import ConfigError
from ragcache.linking.base import Linker
from ragcache.linking.full import Full
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.types import Chunk, Segment

COLUMNS = ("case", "tokens", "linker", "beside", "part", "ttft_s", "efficiency", "speedup", "slower")
QUESTION = "What do these passages have in common?"
CONTEXT = "document"
STOCK, FLOOR = ("stock", "full"), ("floor", "naive")  # case and linker
EXACT = "exact"  # the case of what vLLM's own prefix cache holds
TURN = "turn"  # that of a chat's second question
TIERS = {"disk": "disk", TURN: PREFIX}  # of others "ram"


@dataclass(frozen=True)
class TtftBenchOptions:
    tokens: tuple[int, ...]
    linkers: Mapping[str, Linker]  # by what was written on the command line
    chunk_tokens: int
    rounds: int
    seed: int
    beside: int = 0  # other processes at full load, in a second half of the rows

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"linkers": known_settings(self.linkers)}


def run(parts: TorchModel, texts: Sequence[str], options: TtftBenchOptions, out: Path | None) -> list[Row]:
    check_room(parts, max(options.tokens))
    documents = split_documents(parts.template, texts, options.chunk_tokens)
    prompts = [prompt_chunks(parts.template, documents, tokens, QUESTION, options.seed) for tokens in options.tokens]
    rows: list[Row] = []
    parts.settings.cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parts.settings.cache_dir, prefix="bench-") as folder:
        ram, disk = _caches(parts, documents, prompts, Path(folder))
        for chunks in tqdm(prompts, desc="ttft", unit="length"):
            segments = (parts.template.system(), *chunks, parts.template.question(QUESTION))
            rows += _measure(segments, ram, disk, options)
    publish(common_settings(parts) | options.to_dict() | {"context": CONTEXT}, rows, COLUMNS, out)
    return rows


def check_room(parts: TorchModel, tokens: int) -> None:
    if tokens >= parts.engine.spec.max_tokens:
        raise ConfigError(f"--tokens {tokens}: the model's context has {parts.engine.spec.max_tokens}")


def _caches(
    parts: TorchModel, documents: list[list[Chunk]], prompts: Sequence[Sequence[Chunk]], folder: Path
) -> tuple[ChunkCache, ChunkCache]:
    """The same KV in RAM alone and on disk alone."""
    needed = {chunk.hash: chunk for chunks in prompts for chunk in chunks}
    ram = memory_cache(parts, CONTEXT)
    store = open_store(folder, 0, None, parts.settings.codec)
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
    caches |= {("ram", spec): ram for spec in options.linkers} | {("disk", spec): disk for spec in options.linkers}
    cases: dict[tuple[str, str], Case] = {
        (place, spec): partial(first_token, cache, segments, spec) for (place, spec), cache in caches.items()
    }
    return measured_rows(cases, {STOCK}, options)


def measured_rows(
    cases: Mapping[tuple[str, str], Case], plain: set[tuple[str, str]], options: TtftBenchOptions
) -> list[Row]:
    """Idle, and beside other processes where that is asked for. `plain`: cases whose efficiency says nothing."""
    idle = interleaved(cases, options.rounds)
    rows = _rows(idle, 0, idle, plain)
    if options.beside:
        rows += _rows(beside(cases, options.rounds, options.beside), options.beside, idle, plain)
    return rows


Reports = Mapping[tuple[str, str], Sequence[Report]]


def _rows(reports: Reports, others: int, idle: Reports, plain: set[tuple[str, str]]) -> list[Row]:
    for (place, spec), measured in reports.items():
        check_tiers(spec, TIERS.get(place, "ram"), measured)
    stock, floor = median_ttft(reports[STOCK]), median_ttft(reports[FLOOR])
    rows: list[Row] = []
    for case, measured in reports.items():
        row = _row(case, measured, stock, floor)
        slower = median_ttft(measured) / median_ttft(idle[case]) if others else None
        efficiency = None if case in plain else row["efficiency"]
        rows.append(dict(row) | {"efficiency": efficiency, "beside": others, "slower": slower})
    return rows


def _row(case: tuple[str, str], reports: Sequence[Report], stock: float, floor: float) -> Row:
    """The efficiency says how close a link comes to its bound: placing everything, and its part of a prefill."""
    linked, part = median_ttft(reports), 0.0 if case[0] == EXACT else reports[0].part
    return {
        "case": case[0],
        "tokens": reports[0].prompt_tokens,
        "linker": case[1],
        "part": part,
        "ttft_s": linked,
        "efficiency": (floor + part * stock) / linked,
        "speedup": stock / linked,
    }
