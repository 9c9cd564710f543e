"""Prompt by prompt, then the means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from app.answering.likeness import rouge_l, token_f1
from app.models.loading import LoadedModel, load_embedder
from app.models.sentences import SentenceEmbedder
from app.settings import Settings
from benchmarks.caches import capture, lead
from benchmarks.corpus import sized_splitter
from benchmarks.data import Dataset, read_dataset
from benchmarks.output import Row, common_settings, publish, render
from benchmarks.quality import FIRST, NO_POOL, SPLITTER, QualityBenchOptions
from benchmarks.quality.answering import AnsweringEngine, FullAnswer, Linked
from benchmarks.quality.comparison import compare, read_result
from benchmarks.quality.engines import open_answering, open_parts
from benchmarks.quality.material import Material
from benchmarks.quality.pool import Pool
from benchmarks.quality.prompts import Group, Prompt, PromptBuilder
from benchmarks.quality.records import Partial, Record, settings_key
from benchmarks.quality.shapes import SHAPES
from benchmarks.quality.substitution import Substitute, Substitutions
from benchmarks.quality.summary import INTERVALS, case_of, summarise
from benchmarks.timing import Case, interleaved
from ragcache.errors import ConfigError
from ragcache.linking.base import Linker
from ragcache.report import FULL
from splitter.base import Embed

PLACED = "naive"  # the linker that repairs nothing of what is cached
HIDDEN = ("pool", "shape", "engine", *INTERVALS)  # of the rows' table

Prompts = Mapping[str, Prompt]  # of one question, by splitter
Answerings = Mapping[str, Mapping[str, AnsweringEngine]]  # by splitter and context


def main(settings: Settings, options: QualityBenchOptions, out: Path) -> None:
    _check_engine(settings.engine, options)
    dataset = read_dataset(options.data)
    if options.compare is not None:
        read_result(options.compare)  # a wrong name is said before the long run
    embedder = load_embedder(settings)
    boundaries = SentenceEmbedder(embedder)
    with open_parts(settings) as parts:
        run(parts, embedder.embed, dataset, options, out, boundaries.embed)
    if options.compare is not None:
        rows = compare(out, options.compare)
        print(render(rows, _hidden(rows)))


def run(
    parts: LoadedModel,
    embed: Embed,
    dataset: Dataset,
    options: QualityBenchOptions,
    out: Path,
    boundaries: Embed | None = None,
) -> list[Row]:
    """Measure what is not measured yet, then put all together. `boundaries`: splitters compare sentences by it."""
    chosen = dataset.sample(options.limit, options.seed)
    builders = _builders(parts, embed, boundaries or embed, options, dataset)
    _check_cut(chosen, builders, options)
    settings = common_settings(parts) | options.settings() | {"data": dataset.digest}
    settings |= {"embedder": parts.settings.embedder, "codec": parts.settings.codec}
    kept = Partial(out, settings_key(settings), options.resume)
    measurement = Measurement(parts, options)
    with tqdm(total=len(chosen.questions), unit="question", desc="quality") as bar:
        bar.update(len(kept.records))
        for groups in zip(*(builder.groups(chosen) for builder in builders.values()), strict=True):
            for name, record in measurement.of(dict(zip(builders, groups, strict=True)), kept.records):
                kept.append(name, record)
                bar.update()
    rows = summarise(list(kept.records.values()), options, parts.engine.name)
    dropped = {
        name: sum(builder.dropped(question) for question in chosen.questions) for name, builder in builders.items()
    }
    told = settings | {"questions": len(chosen.questions), "contexts_dropped": dropped}
    publish(told, rows, out, {"answers": kept.records}, _hidden(rows))
    kept.remove()
    return rows


def _check_engine(engine: str, options: QualityBenchOptions) -> None:
    """Before the model is loaded."""
    found = [spec for spec, method in options.linkers.items() if not isinstance(method, Linker)]
    if found and engine != "torch":
        raise ConfigError(f"--linkers {','.join(found)}: baselines run on the torch engine alone, not on {engine}")


def _builders(
    parts: LoadedModel, embed: Embed, boundaries: Embed, options: QualityBenchOptions, dataset: Dataset
) -> dict[str, PromptBuilder]:
    """By splitter. Raises ConfigError for a pool of no passages."""
    passages = [text for question in dataset.questions for text in question.contexts]
    if options.pool != NO_POOL and not passages:
        raise ConfigError(f"--pool {options.pool}: these questions come without passages; leave --pool out")
    template, room = parts.template, parts.engine.spec.max_tokens - options.max_tokens
    even = sized_splitter(template, options.chunk_tokens)
    builders = {}

    def shape(material: Material) -> Material:
        return SHAPES[options.shape](material, dataset, options.seed)

    for name in options.splitters:
        splitter = sized_splitter(template, options.chunk_tokens, name, boundaries)
        pool = None if options.pool == NO_POOL else Pool.of(passages, splitter, embed, options.pool == FIRST)
        builders[name] = PromptBuilder(template, embed, splitter, even, options.top_k, room, options.order, pool, shape)
    return builders


def _check_cut(chosen: Dataset, builders: Mapping[str, PromptBuilder], options: QualityBenchOptions) -> None:
    """Rows of splitters that had nothing to do would tell of a difference where there is none."""
    if options.splitters == (SPLITTER,):
        return
    builder = next(iter(builders.values()))
    if not any(builder.cuts(question) for question in chosen.questions):
        raise ConfigError(
            f"--splitter {','.join(options.splitters)}: no passage of these questions is longer than --chunk-tokens "
            f"{options.chunk_tokens}, so there is nothing to cut: leave --splitter out, or lower --chunk-tokens"
        )


def _hidden(rows: Sequence[Row]) -> tuple[str, ...]:
    """Columns that the table for people leaves out."""
    return HIDDEN if len({row["splitter"] for row in rows}) > 1 else (*HIDDEN, "splitter")


class Measurement:
    """Of one question after the other, by every splitter. The prompts of the first ones are timed too."""

    def __init__(self, parts: LoadedModel, options: QualityBenchOptions):
        self._parts, self._options = parts, options
        self._substitutes = Substitutions(parts, options.linkers, options.splitters)
        self._seen = 0  # questions, also those that were done before

    def of(self, groups: Mapping[str, Group], done: Mapping[str, Record]) -> Iterator[tuple[str, Record]]:
        """The same questions by each splitter: those that are not done, each with its results."""
        asked = [
            dict(zip(groups, prompts, strict=True))
            for prompts in zip(*(group.prompts for group in groups.values()), strict=True)
        ]
        for prompts in asked:
            self._substitutes.meet(prompts)
        places = range(self._seen, self._seen + len(asked))
        self._seen = places.stop
        todo = [(place, one) for place, one in zip(places, asked, strict=True) if _name(one) not in done]
        if not todo:
            return
        answerings = self._answerings(groups, [prompts for _, prompts in todo])
        for place, prompts in todo:
            yield _name(prompts), self._measure(prompts, answerings, timed=place < self._options.ttft_prompts)

    def _answerings(self, groups: Mapping[str, Group], asked: Sequence[Prompts]) -> Answerings:
        """Each over a cache of its own that holds what its prompts need: a chunk's KV depends on those before it."""
        found: dict[str, dict[str, AnsweringEngine]] = {}
        for splitter, group in groups.items():
            needed = [chunk for prompts in asked for chunk in prompts[splitter].chunks]
            found[splitter] = {}
            for context in self._options.contexts:
                answering = open_answering(self._parts, context, self._options.max_tokens)
                system = self._parts.template.system()
                codec = self._parts.settings.codec
                variants = capture(answering.cache, system, group.documents, needed, group.revised, codec)
                for _ in tqdm(variants, desc=f"KV, {splitter}, {context}", unit="chunk", leave=False):
                    pass
                if self._options.led:
                    lead(answering.cache, system, [one[splitter].chunks[0] for one in asked])
                found[splitter][context] = answering
        return found

    def _measure(self, prompts: Prompts, answerings: Answerings, timed: bool) -> Record:
        answers: dict[str, str] = {}
        results: list[Record] = []
        for splitter, prompt in prompts.items():
            full = next(iter(answerings[splitter].values())).reference(prompt.segments)
            answers[splitter] = full.text
            instead = {spec: self._substitutes.of(splitter, spec, prompt) for spec in self._options.linkers}
            results += (
                {"splitter": splitter, "linker": spec, "context": context}
                | _figures(_linked(answering, prompt, spec, instead[spec], full), full, prompt)
                for context, answering in answerings[splitter].items()
                for spec in self._options.linkers
            )
        return {"answer": answers, "results": results, "ttft": self._times(prompts, answerings) if timed else None}

    def _times(self, prompts: Prompts, answerings: Answerings) -> dict[str, dict[str, list[float]]]:
        """Seconds per round, by splitter: of the full recompute and of each linker and context. Each round has all of
        them, so that splitters are compared as linkers are; the answers were the warm-up.
        """
        cases: dict[tuple[str, str], Case] = {}
        for splitter, prompt in prompts.items():
            by_context, segments = answerings[splitter], prompt.segments
            cases[splitter, FULL] = partial(next(iter(by_context.values())).first_token, segments, FULL)
            for context, answering in by_context.items():
                for spec, method in self._options.linkers.items():
                    if (case := case_of(spec, method, context)) != FULL:
                        instead = self._substitutes.of(splitter, spec, prompt)
                        cases[splitter, case] = _first_token(answering, prompt, spec, instead)
        times: dict[str, dict[str, list[float]]] = {splitter: {} for splitter in prompts}
        for (splitter, case), reports in interleaved(cases, self._options.ttft_rounds, warm_ups=0).items():
            times[splitter][case] = [report.ttft_s for report in reports]
        return times


def _linked(
    answering: AnsweringEngine, prompt: Prompt, spec: str, instead: Substitute | None, full: FullAnswer
) -> Linked:
    if instead is None:
        return answering.linked(prompt.segments, spec, full)
    return replace(answering.linked(instead.segments, FULL, full), part=instead.part)


def _first_token(answering: AnsweringEngine, prompt: Prompt, spec: str, instead: Substitute | None) -> Case:
    if instead is None:
        return partial(answering.first_token, prompt.segments, spec)
    answering.cache.system_variant(instead.placed)  # it is in RAM before anybody counts seconds
    return partial(answering.first_token, instead.segments, PLACED)


def _name(prompts: Prompts) -> str:
    return next(iter(prompts.values())).name


def _figures(linked: Linked, full: FullAnswer, prompt: Prompt) -> Record:
    return vars(linked.divergence) | {
        "rouge_l": rouge_l(linked.text, full.text),
        "f1": token_f1(linked.text, prompt.answers) if prompt.answers else None,
        "part": linked.part,
    }
