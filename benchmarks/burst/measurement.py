"""On real vLLM in this process, each case by turns.

`alone` is the burst without the cached request, `ordered` the burst asked once the cached request has its first token,
as an engine that serves by arrival would take it up, and `adaptive` both as they come.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from threading import Event
from typing import Any

from tqdm import tqdm

from app.models.loading import VllmModel
from app.settings import Settings
from benchmarks.burst import ADAPTIVE, ALONE, CASES, ORDERED, BurstBenchOptions
from benchmarks.cake import EXACT
from benchmarks.cake.costs import paper_seconds_per_byte
from benchmarks.cake.prompt import PATIENCE, WARM_UPS
from benchmarks.cake.vllm import ROOM, captured
from benchmarks.corpus import CONTEXT, QUESTION, prompt_chunks, read_texts, split_documents
from benchmarks.folder import bench_folder
from benchmarks.load.clients import Ask, open_loop
from benchmarks.output import Row, Value, common_settings, publish
from benchmarks.timing import interleaved, median_ttft, one_token, paired
from benchmarks.vllm_model import open_vllm, vllm_cache
from benchmarks.vllm_requests import outputs
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.errors import ConfigError
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import READERS, DiskThreads
from ragcache.loader.throttle import Throttle
from ragcache.planning import plan_prompt
from ragcache.report import FULL, Report
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Chunk, Segment


def main(settings: Settings, options: BurstBenchOptions, out: Path) -> None:
    run(settings.model_copy(update={"engine": "vllm"}), read_texts(options.data), options, out)


def run(
    settings: Settings, texts: Sequence[str], options: BurstBenchOptions, out: Path | None, **engine: Any
) -> list[Row]:
    """`engine`: more of vLLM's engine arguments."""
    if options.shortest > options.longest:
        raise ConfigError(f"--shortest {options.shortest} is more than --longest {options.longest}: turn them around")
    length = max(options.tokens, options.longest) + ROOM + options.answer_tokens
    rows: list[Row] = []
    with open_vllm(settings, when="sooner", max_model_len=length, **engine) as parts:
        documents = split_documents(parts.template, ["\n\n".join(texts)], options.chunk_tokens)
        chunks = prompt_chunks(parts.template, documents, options.tokens, QUESTION, options.seed)
        for kind in options.kinds:
            with bench_folder(parts.settings.cache_dir) as folder:
                disk = open_store(folder, ram_bytes=0, codec=parts.settings.codec)
                for variant in captured(parts, documents, chunks, kind):
                    disk.put(variant)
                burst = Burst(parts, documents, chunks, disk, kind, options)
                for speed in tqdm(options.bandwidths, desc=f"burst, {kind}", unit="case"):
                    rows += burst.rows(speed)
        told = common_settings(parts) | options.settings() | {"context": CONTEXT}
    publish(told, rows, out)
    return rows


@dataclass(frozen=True)
class Outcome:
    """Of one case in one round."""

    finish: float  # seconds, until the last answer has ended
    others: float  # the mean first token of the ordinary requests, from when they were due
    first: float | None  # the cached request's first token
    linked: float | None  # its part that was computed


class Burst:
    """One cached request, whose KV is on the disk, and ordinary ones that nobody has asked before."""

    def __init__(
        self,
        parts: VllmModel,
        documents: Sequence[Sequence[Chunk]],
        chunks: Sequence[Chunk],
        disk: KVStore,
        kind: str,
        options: BurstBenchOptions,
    ):
        self._parts, self._options, self._kind = parts, options, kind
        self._linker = "naive" if kind == EXACT else options.linker
        self._segments: list[Segment] = [parts.template.system(), *chunks, parts.template.question(QUESTION)]
        self._text = [token for document in documents for chunk in document for token in chunk.ids]
        self._source = random.Random(options.seed)
        engine = parts.engine
        engine.use_store(disk)
        self._cache = vllm_cache(engine, disk, CONTEXT)
        plain = median_ttft(interleaved({FULL: self._computed}, options.rounds)[FULL])
        plan = plan_prompt(self._segments, engine.spec.fingerprint, disk)
        self._nbytes = sum(chunk.candidates[0].info.nbytes for chunk in plan.chunks)
        self._seconds_per_byte = paper_seconds_per_byte(plain, engine.spec, engine.spec.kv_heads, chunks)

    def _computed(self) -> Report:
        """The cached request without its cache."""
        self._parts.engine.forget_prefixes()
        return one_token(self._cache, self._segments, FULL)

    def rows(self, speed: float) -> list[Row]:
        """Of all cases on a disk of so many Gbps of the paper."""
        pace = Throttle(speed / self._seconds_per_byte)
        threads = DiskThreads(READERS, "ragcache-read", PATIENCE)
        found: dict[str, list[Outcome]] = {case: [] for case in CASES}
        with closing(CakeLoader(threads, pace=pace, claims=False)) as loader:
            self._parts.engine.use_loader(loader)
            for number in range(WARM_UPS + self._options.rounds):
                prompts = self._drawn()
                for case in CASES:
                    pace.restart()
                    outcome = self._asked(case, prompts)
                    if number >= WARM_UPS:
                        found[case].append(outcome)
        return [self._row(case, speed, found) for case in CASES]

    def _drawn(self) -> list[list[int]]:
        """The ordinary requests of a round, as token ids: no two begin alike."""
        options, prompts = self._options, []
        for _ in range(options.others):
            start = self._source.randrange(len(self._text))
            length = self._source.randint(options.shortest, options.longest)
            prompts.append([self._text[(start + place) % len(self._text)] for place in range(length)])
        return prompts

    def _asked(self, case: str, prompts: Sequence[Sequence[int]]) -> Outcome:
        self._parts.engine.forget_prefixes()
        begun, told, after = Event(), list[float](), self._options.after
        cached = [] if case == ALONE else [(0.0, partial(self._cached, begun, told))]
        awaited = begun if case == ORDERED else None
        burst: list[tuple[float, Ask]] = [(after, partial(self._ordinary, ids, awaited)) for ids in prompts]
        streams = open_loop([*cached, *burst], case)
        others, first = streams[len(cached) :], streams[0].ttft if cached else None
        finish = max(stream.tokens[-1] for stream in streams)
        return Outcome(finish, mean(one.ttft for one in others), first, told[0] if told else None)

    def _cached(self, begun: Event, told: list[float]) -> Iterator[int]:
        ids = [token for segment in self._segments for token in segment.ids]
        params = {"kv_transfer_params": link_params(self._segments, self._linker)}
        try:
            for output in outputs(self._parts.engine, ids, self._sampling(params)):
                begun.set()
                yield len(output.outputs[0].token_ids)
            told.append(float(output.kv_transfer_params[KEY]["part"]))
        finally:  # nobody waits for what has failed
            begun.set()

    def _ordinary(self, ids: Sequence[int], awaited: Event | None) -> Iterator[int]:
        if awaited is not None:
            awaited.wait()
        for output in outputs(self._parts.engine, ids, self._sampling(None)):
            yield len(output.outputs[0].token_ids)

    def _sampling(self, params: dict[str, Any] | None) -> Any:
        return self._parts.engine.sampling(self._options.answer_tokens, params)

    def _row(self, case: str, speed: float, found: Mapping[str, Sequence[Outcome]]) -> Row:
        mine = found[case]
        row: dict[str, Value] = {
            "case": case,
            "engine": self._parts.engine.name,
            "kind": self._kind,
            "tokens": self._options.tokens,
            "others": self._options.others,
            "bandwidth_gbps": speed,
            "load_s": self._nbytes * self._seconds_per_byte / speed,
            "finish_s": median(one.finish for one in mine),
            "cached_ttft_s": None if case == ALONE else median(one.first or 0.0 for one in mine),
            "part": None if case == ALONE else median(one.linked or 0.0 for one in mine),
            "others_ttft_s": None if case == ORDERED else median(one.others for one in mine),
        }
        against = ("against_ordered", "against_ordered_high", "others_slower", "others_slower_high")
        row |= dict.fromkeys(against)
        if case == ADAPTIVE:
            ordered, alone = found[ORDERED], found[ALONE]
            finishes = paired([one.finish for one in mine], [one.finish for one in ordered], self._options.seed)
            waits = paired([one.others for one in mine], [one.others for one in alone], self._options.seed)
            row |= dict(zip(against, (*finishes, *waits), strict=True))
        return row
