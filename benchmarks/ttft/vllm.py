"""Through vLLM's own streaming path.

Stock is a request that asks nothing of us, `exact` the same one again, when vLLM's prefix cache holds it: nothing can
be sooner. `turn` is the second question of a chat over the same chunks, behind the first one's answer: of a request
that asks nothing of us (full), whose whole history vLLM's prefix cache holds, and of linked ones. From disk means that
the system's page cache has been told to forget the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from app.models.loading import VllmModel
from app.settings import Settings
from benchmarks.caches import forget_pages
from benchmarks.corpus import CONTEXT, QUESTION, holding, prompt_chunks, split_documents
from benchmarks.folder import bench_folder
from benchmarks.output import Row, common_settings, publish
from benchmarks.timing import EXACT, FLOOR, STOCK, TURN, Case, measured_rows, one_token
from benchmarks.ttft import TtftBenchOptions
from benchmarks.vllm_model import empty_store, open_vllm, vllm_cache
from benchmarks.vllm_requests import outputs
from ragcache.cache import ChunkCache
from ragcache.engine.vllm.requests import link_params
from ragcache.report import FULL, Report
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.findings import DISK, RAM
from ragcache.types import Segment, Text

if TYPE_CHECKING:  # vLLM is not everywhere
    from ragcache.engine.vllm.engine import VllmEngine

ROOM = 320  # tokens of a first answer and another question behind the longest prompt, and what a template adds
ANSWER = 128  # tokens of the first turn: more than a block, so that the chunks lie in full ones
AGAIN = "And in what do they differ?"


def run(settings: Settings, texts: Sequence[str], options: TtftBenchOptions, out: Path | None) -> list[Row]:
    length = max(options.tokens) + ROOM
    with open_vllm(settings, max_model_len=length, max_num_batched_tokens=length) as parts:
        rows = _lengths(parts, texts, options)
        told = common_settings(parts)
    publish(told | options.settings() | {"context": CONTEXT, "codec": settings.codec}, rows, out)
    return rows


def _lengths(parts: VllmModel, texts: Sequence[str], options: TtftBenchOptions) -> list[Row]:
    documents = split_documents(parts.template, texts, options.chunk_tokens)
    system, question = parts.template.system(), parts.template.question(QUESTION)
    cache = vllm_cache(parts.engine, empty_store(parts.settings), CONTEXT)
    rows: list[Row] = []
    with bench_folder(parts.settings.cache_dir) as kept:
        disk = open_store(kept, ram_bytes=0, codec=parts.settings.codec)
        disk.put(cache.system_variant(system))
        for tokens in tqdm(options.tokens, desc="ttft", unit="length"):
            chunks = prompt_chunks(parts.template, documents, tokens, QUESTION, options.seed)
            for document in holding(documents, chunks):
                for variant in cache.ingest(system, document):
                    disk.put(variant)
            places = Places(parts.engine, cache, disk, kept, parts.template.question(AGAIN).ids)
            rows += _measure(places, (system, *chunks, question), options)
    return rows


class Places:
    """One prompt's chunks in RAM and on a disk that nobody has read from."""

    def __init__(self, engine: VllmEngine, cache: ChunkCache, disk: KVStore, folder: Path, again: Sequence[int]):
        """`again`: the ids of a second question."""
        self._engine, self._cache, self._folder, self._again = engine, cache, folder, again
        self._disk = disk

    def first_token(self, place: str, segments: Sequence[Segment], linker: str) -> Report:
        engine = self._engine
        engine.use_store(self._disk if place == DISK else self._cache.store)
        if place == DISK:
            forget_pages(self._folder)
        if place != EXACT:  # it comes right after stock, whose blocks it finds
            engine.forget_prefixes()
        return one_token(self._cache, segments, linker)

    def second_turn(self, segments: Sequence[Segment], linker: str) -> Report:
        engine = self._engine
        engine.use_store(self._cache.store)
        engine.forget_prefixes()
        *before, question = segments
        # Answers of one length, whatever ends them: then as much of the last block is left to compute.
        params = engine.sampling(ANSWER, {"kv_transfer_params": link_params(segments, linker)})
        ids = [token for segment in segments for token in segment.ids]
        answer = [token for output in outputs(engine, ids, params) for token in output.outputs[0].token_ids]
        behind = Text((*question.ids, *answer, *self._again))
        return one_token(self._cache, [*before, behind], linker)


def _measure(places: Places, segments: Sequence[Segment], options: TtftBenchOptions) -> list[Row]:
    names = [STOCK, (EXACT, FULL), FLOOR, *((place, spec) for place in (RAM, DISK) for spec in options.linkers)]
    cases: dict[tuple[str, str], Case] = {
        (place, spec): partial(places.first_token, place, segments, spec) for place, spec in names
    }
    turns = [(TURN, spec) for spec in (FULL, *options.linkers)]
    cases |= {(place, spec): partial(places.second_turn, segments, spec) for place, spec in turns}
    return measured_rows(cases, {STOCK, (EXACT, FULL), *turns}, options.rounds, options.beside)
