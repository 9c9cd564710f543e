"""Questions and first tokens in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from tqdm import tqdm

from app.answering.pipeline import RagPipeline
from app.library import Library
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.records import Collection
from app.models import Models
from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from benchmarks.caches import capture, memory_cache
from benchmarks.corpus import CONTEXT, QUESTION, check_room, prompt_chunks, read_texts, split_documents, with_cut
from benchmarks.folder import bench_folder
from benchmarks.output import Row, common_settings, publish
from benchmarks.search import SearchBenchOptions
from benchmarks.search.data import Topics, fill
from benchmarks.timing import Case, check_tiers, first_token, median_ttft
from ragcache.report import Report
from ragcache.store.findings import RAM
from retriever import Hit, Vectors
from retriever.searcher import Searcher

NAME, LINKER = "bench", "auto"
WARM_UP = 5  # questions, each with a first token, that do not count


@dataclass(frozen=True)
class Seconds:
    """Of one question."""

    embed: float
    search: float  # with the embedding
    total: float


class Watch:
    """How long each part of the last question took."""

    def __init__(self) -> None:
        self.embed = self.search = 0.0


@dataclass(frozen=True)
class TimedSearcher(Searcher):
    watch: Watch | None = None

    def search(self, question: str, k: int, **options: Any) -> list[Hit]:
        assert self.watch is not None
        started = perf_counter()
        hits = super().search(question, k, **options)
        self.watch.search += perf_counter() - started
        return hits


class TimedLibrary(Library):
    def __init__(self, settings: Settings, catalog: Catalog, models: Models) -> None:
        super().__init__(settings, catalog, models)
        self.watch = Watch()

    @contextmanager
    def searching(self, collection: Collection) -> Iterator[Searcher]:
        with super().searching(collection) as opened:
            parts = {field.name: getattr(opened, field.name) for field in fields(Searcher)}
            yield TimedSearcher(**parts | {"embed": self._embed}, watch=self.watch)

    def _embed(self, question: str) -> Vectors:
        started = perf_counter()
        vector = self._models.embedder.embed_query(question)
        self.watch.embed += perf_counter() - started
        return vector


def main(settings: Settings, options: SearchBenchOptions, out: Path) -> None:
    run(settings, read_texts(options.data), options, out)


def run(settings: Settings, texts: Sequence[str], options: SearchBenchOptions, out: Path | None) -> list[Row]:
    parts = load_torch_model(settings)
    first = linked(parts, texts, options)
    with bench_folder(settings.cache_dir) as folder:
        alone = {"data_dir": folder, "database_url": None, "reranker": None, "collection": NAME}
        own = settings.model_copy(update=alone)
        with open_catalog(own) as catalog, Models(own) as models:
            library = TimedLibrary(own, catalog, models)
            topics = Topics.of(texts, models.embedder, options.seed)
            ingest(library, topics, options.chunks)
            asked = topics.questions(options.questions)
            seconds, reports = measure(library, models, asked, first, options.rounds)
    check_tiers(LINKER, RAM, reports)
    rows = [_row(options.chunks, settings.retrieval, seconds, median_ttft(reports))]
    publish(common_settings(parts) | options.settings() | {"linker": LINKER, "context": CONTEXT}, rows, out)
    return rows


def linked(parts: TorchModel, texts: Sequence[str], options: SearchBenchOptions) -> Case:
    """A first token of a prompt whose chunks are in RAM, as `ragcache bench ttft` has it."""
    check_room(parts, options.tokens)
    system, question = parts.template.system(), parts.template.question(QUESTION)
    documents = split_documents(parts.template, texts, options.chunk_tokens)
    chunks = prompt_chunks(parts.template, documents, options.tokens, QUESTION, options.seed)
    cache = memory_cache(parts, CONTEXT)
    for _ in capture(cache, system, with_cut(documents, chunks), chunks):
        pass
    return lambda: first_token(cache, (system, *chunks, question), LINKER)


def ingest(library: Library, topics: Topics, chunks: int) -> None:
    """The chunks in SQL, and the indexes behind them."""
    collection = library.collection_or_new()
    with tqdm(total=chunks, desc="chunks", unit="chunk") as bar:
        for done in fill(library, collection, topics, chunks):
            bar.update(done - bar.n)
    searcher = library.searcher(collection)
    searcher.catch_up()
    searcher.save()


def measure(
    library: TimedLibrary, models: Models, questions: Sequence[str], first: Case, rounds: int
) -> tuple[list[Seconds], list[Report]]:
    pipeline = RagPipeline(over=(library, models))
    for question in questions[:WARM_UP]:
        _ask(pipeline, library.watch, question)
        first()
    seconds, reports = [], []
    for question in tqdm([*questions] * rounds, desc="search", unit="question"):
        seconds.append(_ask(pipeline, library.watch, question))
        reports.append(first())
    return seconds, reports


def _ask(pipeline: RagPipeline, watch: Watch, question: str) -> Seconds:
    watch.embed = watch.search = 0.0
    started = perf_counter()
    found = pipeline.retrieve(question)
    total = perf_counter() - started
    assert found, question
    return Seconds(watch.embed, watch.search, total)


def _row(chunks: int, mode: str, seconds: Sequence[Seconds], ttft: float) -> Row:
    totals = [one.total for one in seconds]
    p50 = float(np.percentile(totals, 50))
    return {
        "chunks": chunks,
        "mode": mode,
        "embed_ms": 1000 * median(one.embed for one in seconds),
        "search_ms": 1000 * median(one.search - one.embed for one in seconds),
        "rows_ms": 1000 * median(one.total - one.search for one in seconds),
        "total_p50_ms": 1000 * p50,
        "total_p99_ms": 1000 * float(np.percentile(totals, 99)),
        "ttft_linked_ms": 1000 * ttft,
        "share": p50 / ttft,
    }
