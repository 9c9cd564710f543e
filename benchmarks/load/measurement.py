"""On real vLLM in this process.

`stock` is vLLM without its prefix cache, `prefix` vLLM as it starts by default, `linked` the same with the chunks' KV
in RAM. What vLLM is started with differs, so there are two engines, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from app.models.loading import VllmModel
from app.settings import Settings
from benchmarks.caches import capture
from benchmarks.corpus import read_texts, split_documents
from benchmarks.load import SYSTEMS, LoadBenchOptions
from benchmarks.load.schedule import HIDDEN, Counted, LoadRequest, Schedule, Serve, sustained
from benchmarks.output import Row, common_settings, publish, render
from benchmarks.vllm_model import empty_store, open_vllm, vllm_cache
from benchmarks.vllm_requests import outputs
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.errors import ConfigError
from ragcache.store.base import KVStore
from ragcache.types import Chunk, Segment

QUESTION = "What do these passages have in common? (Question {number})"
STOCK, PREFIX, LINKED = SYSTEMS


def main(settings: Settings, options: LoadBenchOptions, out: Path) -> None:
    run(settings.model_copy(update={"engine": "vllm"}), read_texts(options.data), options, out)


def run(
    settings: Settings, texts: Sequence[str], options: LoadBenchOptions, out: Path | None, **engine: Any
) -> list[Row]:
    """`engine`: more of vLLM's engine arguments."""
    rows: list[Row] = []
    with open_vllm(settings, enable_prefix_caching=False, **engine) as parts:
        told = common_settings(parts)
        population = Population(parts, texts, options)
        load = Schedule(options, len(population.chunks))
        serve = population.server(parts, STOCK)
        load.burst(serve, 0, "warm-up")
        saturation = load.burst(serve, 1, "saturation")
        if STOCK in options.systems:
            rows += [load.case(STOCK, serve, saturation, one) for one in options.loads]
    others = [name for name in SYSTEMS if name in options.systems and name != STOCK]
    if others:
        with open_vllm(settings, enable_prefix_caching=True, **engine) as parts:
            for name in others:
                rows += _cases(parts, population, load, name, saturation)
    ratios = sustained(rows)
    told |= options.settings() | {"saturation": saturation, "available": len(population.chunks)}
    publish(told, rows, out, {"sustained": ratios}, HIDDEN)
    print(f"\nstock vLLM is saturated at {saturation:.3g} requests per second")
    if ratios:
        print(render(ratios))
    return rows


def _cases(parts: VllmModel, population: Population, load: Schedule, name: str, saturation: float) -> list[Row]:
    parts.engine.forget_prefixes()
    if name == LINKED:
        parts.engine.use_store(population.captured(parts))
    serve = population.server(parts, name)
    load.burst(serve, 0, f"{name}: warm-up")  # the prefix cache holds what is popular
    return [load.case(name, serve, saturation, one) for one in load.options.loads]


class Population:
    """The chunks that requests are about."""

    def __init__(self, parts: VllmModel, texts: Sequence[str], options: LoadBenchOptions):
        self._options = options
        self._documents = split_documents(parts.template, texts, options.chunk_tokens)
        least = 3 * options.chunk_tokens // 4  # the rests at the ends of sections are no chunks of that length
        whole = (chunk for document in self._documents for chunk in document if len(chunk) >= least)
        distinct = {chunk.hash: chunk for chunk in whole}
        self.chunks: list[Chunk] = list(islice(distinct.values(), options.population))
        self._check_room(parts)

    def _check_room(self, parts: VllmModel) -> None:
        longest = sum(sorted((len(chunk) for chunk in self.chunks), reverse=True)[: self._options.chunks])
        others = len(parts.template.system()) + len(parts.template.question(QUESTION)) + self._options.answer_tokens
        if longest + others > parts.engine.spec.max_tokens:
            raise ConfigError(
                f"{self._options.chunks} chunks make prompts of up to {longest + others} tokens, the model's context "
                f"has {parts.engine.spec.max_tokens}: ask for fewer --chunks or less --chunk-tokens"
            )

    def captured(self, parts: VllmModel) -> KVStore:
        """KV of all of them in RAM."""
        store = empty_store(parts.settings)
        cache = vllm_cache(parts.engine, store, self._options.context)
        variants = capture(cache, parts.template.system(), self._documents, self.chunks)
        for _ in tqdm(variants, desc="KV", unit="chunk", leave=False):
            pass
        return store

    def server(self, parts: VllmModel, system: str) -> Serve:
        return lambda request, counted: partial(self._ask, parts, system, self._segments(parts, request), counted)

    def _segments(self, parts: VllmModel, request: LoadRequest) -> list[Segment]:
        chunks = [self.chunks[place] for place in request.chunks]
        return [parts.template.system(), *chunks, parts.template.question(QUESTION.format(number=request.number))]

    def _ask(self, parts: VllmModel, system: str, segments: Sequence[Segment], counted: Counted) -> Iterator[int]:
        """A request that always answers with as many tokens."""
        ids = [token for segment in segments for token in segment.ids]
        asked = link_params(segments, self._options.linker) if system == LINKED else None
        params = parts.engine.sampling(self._options.answer_tokens, asked and {"kv_transfer_params": asked})
        for output in outputs(parts.engine, ids, params):
            yield len(output.outputs[0].token_ids)
        counted.part = _part(output, system, len(ids), len(segments[-1]))


def _part(output: Any, system: str, prompt: int, question: int) -> float:
    if system == LINKED:
        return float(output.kv_transfer_params[KEY]["part"])
    return 1 - min((output.num_cached_tokens or 0) / (prompt - question), 1.0)
