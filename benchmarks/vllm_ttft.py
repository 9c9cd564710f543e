"""`ragcache bench ttft --engine vllm`: time to the first token through vLLM's own streaming path.

Stock is a request that asks nothing of us, `exact` the same one again, when vLLM's prefix cache holds it: nothing can
be sooner. From disk means that the system's page cache has been told to forget the files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from app.devices import resolve_device, resolve_dtype
from app.models import resolve_model
from app.prompt import PromptTemplate, load_tokenizer
from app.settings import Settings
from benchmarks.caches import CONTEXTS
from benchmarks.corpus import fill, shuffled, split_documents
from benchmarks.output import publish
from benchmarks.table import Row
from benchmarks.ttft import COLUMNS, CONTEXT, QUESTION, Options
from ragcache.errors import StoreError
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.types import Chunk, Segment

if TYPE_CHECKING:  # vLLM is not everywhere
    from ragcache.engine.vllm.cache import VllmCache

STOCK, EXACT, FLOOR = ("stock", "full"), ("exact", "full"), ("floor", "naive")
ROOM = 64  # tokens of the longest prompt's answer, and what a template adds
KV_BYTES = 2 << 30  # of vLLM's paged cache
Prepare = Callable[[], None]


def run(settings: Settings, texts: Sequence[str], options: Options, out: Path | None) -> list[Row]:
    from ragcache.engine.vllm.engine import VllmEngine

    folder, device = resolve_model(settings.model, settings.cache_dir), resolve_device(settings)
    template = PromptTemplate(load_tokenizer(folder), settings.system_prompt)
    ram = open_store(None, None, None, settings.codec)
    length = max(options.tokens) + ROOM
    engine = VllmEngine(
        folder,
        resolve_dtype(settings, device),
        ram,
        linking={},
        max_model_len=length,
        max_num_batched_tokens=length,
        kv_cache_memory_bytes=KV_BYTES,
    )
    try:
        rows = _lengths(template, engine, ram, settings, texts, options)
        told = {"model": settings.model, "fingerprint": engine.spec.fingerprint, "engine": "vllm"}
        told |= {"device": str(engine.spec.device), "dtype": str(engine.spec.dtype).removeprefix("torch.")}
    finally:
        engine.close()
    publish(told | options.to_dict() | {"context": CONTEXT}, rows, COLUMNS, out)
    return rows


def _lengths(
    template: PromptTemplate, engine: Any, ram: Any, settings: Settings, texts: Sequence[str], options: Options
) -> list[Row]:
    from ragcache.engine.vllm.cache import VllmCache

    documents = split_documents(template, texts, options.chunk_tokens)
    system, question = template.system(), template.question(QUESTION)
    cache = VllmCache(engine, ram, "naive", context_chunks=CONTEXTS[CONTEXT], keep_missed=False)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=settings.cache_dir, prefix="bench-") as kept:
        disk = open_store(Path(kept), 0, None, settings.codec)
        disk.put(cache.system_variant(system))
        for tokens in tqdm(options.tokens, desc="ttft", unit="length"):
            every = shuffled([chunk for document in documents for chunk in document], options.seed)
            chunks = fill(every, tokens - len(system) - len(question))
            for document in _documents(documents, chunks):
                for variant in cache.ingest(system, document):
                    disk.put(variant)
            places = {"ram": lambda: engine.use_store(ram), "disk": lambda: _cold(engine, disk, Path(kept))}
            rows += _measure(cache, (system, *chunks, question), places, options)
    return rows


def _documents(documents: Sequence[Sequence[Chunk]], chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
    """Those that hold chunks of the prompt, and what was cut to fill it by itself."""
    wanted = {chunk.hash for chunk in chunks}
    found = [document for document in documents if wanted & {chunk.hash for chunk in document}]
    whole = {chunk.hash for document in found for chunk in document}
    return [*found, [chunk for chunk in chunks if chunk.hash not in whole]]


def _cold(engine: Any, disk: Any, folder: Path) -> None:
    engine.use_store(disk)
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _measure(
    cache: VllmCache, segments: Sequence[Segment], places: Mapping[str, Prepare], options: Options
) -> list[Row]:
    cases: dict[tuple[str, str], Prepare] = {STOCK: places["ram"], EXACT: places["ram"], FLOOR: places["ram"]}
    cases |= {(place, spec): prepare for place, prepare in places.items() for spec in options.linkers}
    reports: dict[tuple[str, str], list[Report]] = {case: [] for case in cases}
    for turn in range(options.rounds + 1):  # the first one warms up
        for case, prepare in cases.items():
            prepare()
            if case != EXACT:  # it comes right after stock, whose blocks it finds
                cache.engine.forget_prefixes()
            generation = cache.generate(segments, max_tokens=1, linker=case[1])
            list(generation)
            if turn:
                reports[case].append(generation.report)
    for case, measured in reports.items():
        _check(case, measured)
    stock, floor = (median(report.ttft_s for report in reports[case]) for case in (STOCK, FLOOR))
    return [_row(case, measured, stock, floor) for case, measured in reports.items()]


def _check(case: tuple[str, str], reports: Sequence[Report]) -> None:
    """A chunk that had to be computed would make a figure of something else."""
    expected = {"ram": "ram", "floor": "ram", "disk": "disk"}.get(case[0], "computed")
    strange = {chunk.tier for report in reports for chunk in report.chunks} - {expected}
    if strange:
        told = "; ".join(incident for report in reports for incident in report.incidents) or "no incident is known"
        raise StoreError(f"{case[1]} from {expected}: some chunks were {', '.join(sorted(strange))} instead ({told})")


def _row(case: tuple[str, str], reports: Sequence[Report], stock: float, floor: float) -> Row:
    linked, part = median(report.ttft_s for report in reports), 0.0 if case == EXACT else reports[0].part
    return {
        "case": case[0],
        "tokens": reports[0].prompt_tokens,
        "linker": case[1],
        "part": part,
        "ttft_s": linked,
        "efficiency": None if case in (STOCK, EXACT) else (floor + part * stock) / linked,
        "speedup": stock / linked,
    }
