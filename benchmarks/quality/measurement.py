"""Prompt by prompt, then the means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from tqdm import tqdm

from app.models.loading import LoadedModel, load_embedder
from app.settings import Settings
from benchmarks.caches import capture
from benchmarks.data import Dataset, read_dataset
from benchmarks.output import Row, common_settings, publish, render
from benchmarks.quality import QualityBenchOptions
from benchmarks.quality.answering import AnsweringEngine, FullAnswer, Linked, open_answering, open_parts
from benchmarks.quality.comparison import compare, read_result
from benchmarks.quality.metrics import estimate, rouge_l, token_f1
from benchmarks.quality.prompts import Embed, Group, Prompt, PromptBuilder
from benchmarks.quality.records import Partial, Record, settings_key
from benchmarks.timing import Case, interleaved

ESTIMATED = ("kl", "kl_first", "agree", "rouge_l", "f1")  # with an interval each
BASELINE = "full"
HIDDEN = ("engine", *(f"{name}_{end}" for name in ESTIMATED for end in ("low", "high")))  # of the rows' table


def main(settings: Settings, options: QualityBenchOptions, out: Path) -> None:
    dataset = read_dataset(options.data)
    if options.compare is not None:
        read_result(options.compare)  # a wrong name is said before the long run
    with open_parts(settings) as parts:
        run(parts, load_embedder(settings).embed, dataset, options, out)
    if options.compare is not None:
        print(render(compare(out, options.compare)))


def run(parts: LoadedModel, embed: Embed, dataset: Dataset, options: QualityBenchOptions, out: Path) -> list[Row]:
    """Measure what is not measured yet, then put all together."""
    chosen = dataset.sample(options.limit, options.seed)
    settings = common_settings(parts) | options.told() | {"data": dataset.digest}
    kept = Partial(out, settings_key(settings), options.resume)
    room = parts.engine.spec.max_tokens - options.max_tokens
    builder = PromptBuilder(parts.template, embed, options.top_k, options.chunk_tokens, room, options.order)
    measurement = Measurement(parts, options)
    with tqdm(total=len(chosen.questions), unit="question", desc="quality") as bar:
        bar.update(len(kept.records))
        for group in builder.groups(chosen):
            for name, record in measurement.of(group, kept.records):
                kept.append(name, record)
                bar.update()
    rows = summarise(list(kept.records.values()), options, parts.engine.name)
    dropped = sum(builder.dropped(question) for question in chosen.questions)
    told = settings | {"questions": len(chosen.questions), "contexts_dropped": dropped}
    publish(told, rows, out, {"answers": kept.records}, HIDDEN)
    kept.remove()
    return rows


class Measurement:
    """Of one prompt after the other. The first prompts are timed too."""

    def __init__(self, parts: LoadedModel, options: QualityBenchOptions):
        self._parts, self._options = parts, options
        self._seen = 0  # prompts, also those that were done before

    def of(self, group: Group, done: Mapping[str, Record]) -> Iterator[tuple[str, Record]]:
        """The group's prompts that are not done, each with its results."""
        places = range(self._seen, self._seen + len(group.prompts))
        self._seen = places.stop
        todo = [(place, prompt) for place, prompt in zip(places, group.prompts, strict=True) if prompt.name not in done]
        if not todo:
            return
        answerings = self._answerings(group, [prompt for _, prompt in todo])
        for place, prompt in todo:
            yield prompt.name, self._measure(prompt, answerings, timed=place < self._options.ttft_prompts)

    def _answerings(self, group: Group, prompts: Sequence[Prompt]) -> dict[str, AnsweringEngine]:
        """By context, each over a cache that holds what the prompts need."""
        found = {}
        needed = [chunk for prompt in prompts for chunk in prompt.chunks]
        for context in self._options.contexts:
            answering = open_answering(self._parts, context, self._options.max_tokens)
            variants = capture(answering.cache, self._parts.template.system(), group.documents, needed)
            for _ in tqdm(variants, desc=f"KV, {context}", unit="chunk", leave=False):
                pass
            found[context] = answering
        return found

    def _measure(self, prompt: Prompt, answerings: Mapping[str, AnsweringEngine], timed: bool) -> Record:
        full = next(iter(answerings.values())).reference(prompt.segments)
        results = [
            {"linker": spec, "context": context} | _figures(answering.linked(prompt.segments, spec, full), full, prompt)
            for context, answering in answerings.items()
            for spec in self._options.linkers
        ]
        return {"answer": full.text, "results": results, "ttft": self._times(prompt, answerings) if timed else None}

    def _times(self, prompt: Prompt, answerings: Mapping[str, AnsweringEngine]) -> dict[str, list[float]]:
        """Seconds per round of the full recompute and of each linker and context; the answers were the warm-up."""
        segments = prompt.segments
        cases: dict[str, Case] = {BASELINE: partial(next(iter(answerings.values())).first_token, segments, BASELINE)}
        for context, answering in answerings.items():
            for spec, linker in self._options.linkers.items():
                if not linker.recompute_all:
                    cases[_case(spec, context)] = partial(answering.first_token, segments, spec)
        reports = interleaved(cases, self._options.ttft_rounds, warm_ups=0)
        return {name: [report.ttft_s for report in measured] for name, measured in reports.items()}


def _case(spec: str, context: str) -> str:
    return f"{spec} {context}"


def _figures(linked: Linked, full: FullAnswer, prompt: Prompt) -> Record:
    return vars(linked.divergence) | {
        "rouge_l": rouge_l(linked.text, full.text),
        "f1": token_f1(linked.text, prompt.answers) if prompt.answers else None,
        "part": linked.part,
    }


def summarise(records: Sequence[Record], options: QualityBenchOptions, engine: str) -> list[Row]:
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
