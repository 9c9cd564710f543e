"""`ragcache bench quality`: what linking costs in answers, against the full recompute of the same prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

from app.compose import Parts
from benchmarks.answering import Answering, Linked, Reference
from benchmarks.caches import capture, memory_cache
from benchmarks.choices import known_settings
from benchmarks.data import Dataset
from benchmarks.metrics import estimate, rouge_l, token_f1
from benchmarks.output import common_settings, publish
from benchmarks.partial import Partial, Record, settings_key
from benchmarks.prompts import Embed, Group, Prompt, PromptBuilder
from benchmarks.table import Row
from benchmarks.timing import Case, interleaved
from ragcache.cache import ChunkCache
from ragcache.linking.base import Linker
from ragcache.linking.full import Full

COLUMNS = ("linker", "context", "kl", "kl_first", "agree", "rouge_l", "f1", "part", "ttft_s", "ttft_speedup", "n")
ESTIMATED = ("kl", "kl_first", "agree", "rouge_l", "f1")  # with an interval each
BASELINE = "full"


@dataclass(frozen=True)
class Options:
    linkers: Mapping[str, Linker]  # by what was written on the command line
    contexts: tuple[str, ...]
    limit: int | None
    seed: int
    max_tokens: int
    top_k: int
    order: str
    chunk_tokens: int
    ttft_rounds: int
    ttft_prompts: int

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"linkers": known_settings(self.linkers)}


def run(parts: Parts, embed: Embed, dataset: Dataset, options: Options, out: Path, resume: bool = False) -> list[Row]:
    """Measure what is not measured yet, then put all together."""
    chosen = dataset.sample(options.limit, options.seed)
    settings = common_settings(parts) | options.to_dict() | {"data": dataset.digest}
    partial = Partial(out, settings_key(settings), resume)
    room = parts.engine.spec.max_tokens - options.max_tokens
    builder = PromptBuilder(parts.template, embed, options.top_k, options.chunk_tokens, room, options.order)
    measurement = Measurement(parts, options)
    with tqdm(total=len(chosen.questions), unit="question", desc="quality") as bar:
        for group in builder.groups(chosen):
            for name, record in measurement.of(group, partial.records):
                partial.append(name, record)
                bar.update()
    rows = summarise(list(partial.records.values()), options, parts.engine.name)
    dropped = sum(builder.dropped(question) for question in chosen.questions)
    publish(settings | {"questions": len(chosen.questions), "contexts_dropped": dropped}, rows, COLUMNS, out)
    partial.remove()
    return rows


class Measurement:
    """Of one prompt after the other. The first prompts are timed too."""

    def __init__(self, parts: Parts, options: Options):
        self._parts, self._options = parts, options
        self._answering = Answering(parts.template, options.max_tokens)
        self._seen = 0  # prompts, also those that were done before

    def of(self, group: Group, done: Mapping[str, Record]) -> Iterator[tuple[str, Record]]:
        """The group's prompts that are not done, each with its results."""
        places = range(self._seen, self._seen + len(group.prompts))
        self._seen = places.stop
        todo = [(place, prompt) for place, prompt in zip(places, group.prompts, strict=True) if prompt.name not in done]
        if not todo:
            return
        caches = self._caches(group, [prompt for _, prompt in todo])
        for place, prompt in todo:
            yield prompt.name, self._measure(prompt, caches, timed=place < self._options.ttft_prompts)

    def _caches(self, group: Group, prompts: Sequence[Prompt]) -> dict[str, ChunkCache]:
        caches = {}
        needed = [chunk for prompt in prompts for chunk in prompt.chunks]
        for context in self._options.contexts:
            cache = memory_cache(self._parts, context)
            variants = capture(cache, self._parts.template.system(), group.documents, needed)
            for _ in tqdm(variants, desc=f"KV, {context}", unit="chunk", leave=False):
                pass
            caches[context] = cache
        return caches

    def _measure(self, prompt: Prompt, caches: Mapping[str, ChunkCache], timed: bool) -> Record:
        full = self._answering.reference(next(iter(caches.values())), prompt.segments)
        results = [
            {"linker": spec, "context": context}
            | _figures(self._answering.linked(cache, prompt.segments, linker, full), full, prompt)
            for context, cache in caches.items()
            for spec, linker in self._options.linkers.items()
        ]
        return {"results": results, "ttft": self._times(prompt, caches) if timed else None}

    def _times(self, prompt: Prompt, caches: Mapping[str, ChunkCache]) -> dict[str, list[float]]:
        """Seconds per round of the full recompute and of each linker and context; the answers were the warm-up."""
        cases: dict[str, Case] = {BASELINE: (next(iter(caches.values())), prompt.segments, Full())}
        for context, cache in caches.items():
            for spec, linker in self._options.linkers.items():
                if not linker.recompute_all:
                    cases[_case(spec, context)] = (cache, prompt.segments, linker)
        reports = interleaved(cases, self._options.ttft_rounds, warm_ups=0)
        return {name: [report.ttft_s for report in measured] for name, measured in reports.items()}


def _case(spec: str, context: str) -> str:
    return f"{spec} {context}"


def _figures(linked: Linked, full: Reference, prompt: Prompt) -> Record:
    return vars(linked.divergence) | {
        "rouge_l": rouge_l(linked.text, full.text),
        "f1": token_f1(linked.text, prompt.answers) if prompt.answers else None,
        "part": linked.part,
    }


def summarise(records: Sequence[Record], options: Options, engine: str) -> list[Row]:
    """A row per linker and context, means over the questions."""
    rows: list[Row] = []
    for spec, linker in options.linkers.items():
        for context in options.contexts:
            wanted = (spec, context)
            results = [
                result
                for record in records
                for result in record["results"]
                if (result["linker"], result["context"]) == wanted
            ]
            case = BASELINE if linker.recompute_all else _case(spec, context)
            times = _summarise_times([record["ttft"] for record in records if record["ttft"]], case)
            part = sum(result["part"] for result in results) / len(results)
            head = {"linker": spec, "context": context, "engine": engine}
            rows.append(head | _estimates(results, options.seed) | {"part": part} | times | {"n": len(results)})
    return rows


def _estimates(results: Sequence[Record], seed: int) -> dict[str, float | None]:
    """Each figure with its interval; none where no question has it."""
    found: dict[str, float | None] = {}
    for name in ESTIMATED:
        values = [result[name] for result in results if result[name] is not None]
        if not values:
            found |= {name: None, f"{name}_low": None, f"{name}_high": None}
            continue
        mean = estimate(values, seed)
        found |= {name: mean.mean, f"{name}_low": mean.low, f"{name}_high": mean.high}
    return found


def _summarise_times(timed: Sequence[dict[str, list[float]]], case: str) -> dict[str, float | None]:
    """Medians over rounds, then over prompts; the speed-up is each prompt's own."""
    if not timed:
        return {"ttft_s": None, "ttft_speedup": None}
    ours = [median(times[case]) for times in timed]
    full = [median(times[BASELINE]) for times in timed]
    return {
        "ttft_s": median(ours),
        "ttft_speedup": median(baseline / own for baseline, own in zip(full, ours, strict=True)),
    }
