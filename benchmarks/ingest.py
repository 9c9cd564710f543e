"""`ragcache bench ingest`: an ingest against the models at its heart, and one that finds nothing to do.

| case | measured | baseline |
|---|---|---|
| unchanged | the whole command, over files that are in already | the ingest that brought them in |
| embed | an ingest without KV | the embedder alone, over the texts that the ingest embeds |
| kv | an ingest with KV, to the disk | a plain prefill of each document, behind the System segment |

The ratio is that of the throughputs: baseline_s / seconds. Models are loaded before, except for `unchanged`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

from tqdm import tqdm

from app.compose import opened
from app.ingestion.draft import Draft, draft
from app.ingestion.ingest import Ingest
from app.ingestion.outcome import FileStamp
from app.ingestion.records import IngestOptions, IngestResult
from app.library import Library
from app.loaders import load
from app.models import Models
from app.settings import Settings
from benchmarks.ingest_files import write_documents
from benchmarks.output import common_settings, publish
from benchmarks.table import Row
from ragcache.cache import ChunkCache
from ragcache.errors import ConfigError
from ragcache.store import open_store
from ragcache.types import Chunk, Variant
from splitter.base import below_headings

CASES = ("unchanged", "embed", "kv")
COLUMNS = ("case", "documents", "tokens", "seconds", "baseline_s", "ratio")
SHORT, MIDDLE, LONG = 200, 8_000, 16_000  # characters of a document in each case


@dataclass(frozen=True)
class IngestBenchOptions:
    cases: tuple[str, ...]
    unchanged_documents: int
    embed_documents: int
    kv_documents: int
    rounds: int
    seed: int


def parse_cases(names: str) -> tuple[str, ...]:
    cases = tuple(name.strip() for name in names.split(","))
    if unknown := set(cases) - set(CASES):
        raise ConfigError(f"unknown case {sorted(unknown)[0]!r}: choose from {', '.join(CASES)}")
    return cases


def run(settings: Settings, texts: Sequence[str], options: IngestBenchOptions, out: Path | None) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(settings.model_copy(update={"data_dir": Path(folder, "data")}), texts, options, Path(folder))
        measure = {"unchanged": bench.unchanged, "embed": bench.embed, "kv": bench.kv}
        rows = [measure[case]() for case in tqdm(options.cases, desc="ingest", unit="case")]
        with Models(bench.settings) as models:
            publish(common_settings(models.language) | vars(options), rows, COLUMNS, out)
    return rows


@dataclass
class Bench:
    settings: Settings
    texts: Sequence[str]
    options: IngestBenchOptions
    folder: Path
    _count: int = field(default=0)

    def unchanged(self) -> Row:
        docs = self._documents("unchanged", self.options.unchanged_documents, SHORT)
        with opened(self.settings) as (library, models):
            first = self._ingest(library, models, docs, kv=False, collection="unchanged")
        flags = ["--no-kv", "--data-dir", str(self.settings.data_dir), "--cache-dir", str(self.settings.cache_dir)]
        command = [sys.executable, "-c", "from app.cli import main; main()", "ingest", str(docs), "-c", "unchanged"]
        seconds = [_timed(lambda: subprocess.run([*command, *flags], check=True, stdout=subprocess.DEVNULL))
                   for _ in range(self.options.rounds)]  # fmt: skip
        return self._row("unchanged", first, median(seconds), first.seconds)

    def embed(self) -> Row:
        docs = self._documents("embed", self.options.embed_documents, MIDDLE)
        with opened(self.settings) as (library, models):
            texts = [below_headings(*one) for draft in _drafts(library, models, docs) for one in draft.headed()]
            models.embedder.embed(texts[:8])
            return self._compare(
                "embed",
                lambda: _timed(lambda: models.embedder.embed(texts)),
                lambda: self._ingest(library, models, docs, kv=False),
            )

    def kv(self) -> Row:
        docs = self._documents("kv", self.options.kv_documents, LONG)
        with opened(self.settings) as (library, models):
            cache, system = models.cache, models.template.system()
            if not isinstance(cache, ChunkCache):
                raise ConfigError("case kv compares with a plain prefill by the torch engine: choose that one")
            documents = [list(one.segments(models.template)) for one in _drafts(library, models, docs)]
            behind = cache.kvgen.system(system)

            def ingest() -> IngestResult:
                fresh = open_store(self._place("kv"), 0, None, self.settings.codec)
                models.store = fresh
                models.cache = models.language.cache(fresh)
                return self._ingest(library, models, docs, kv=True)

            return self._compare("kv", lambda: _timed(lambda: _prefill_all(cache, behind, documents)), ingest)

    def _compare(self, case: str, baseline: Callable[[], float], ingest: Callable[[], IngestResult]) -> Row:
        """In turns, so that a slow minute hits both; the first round does not count."""
        alone, ingests = [], []
        for turn in range(self.options.rounds + 1):
            seconds, result = baseline(), ingest()
            if turn:
                alone.append(seconds)
                ingests.append(result)
        return self._row(case, ingests[0], median(result.seconds for result in ingests), median(alone))

    def _ingest(
        self, library: Library, models: Models, docs: Path, *, kv: bool, collection: str | None = None
    ) -> IngestResult:
        self._count += 1
        made = library.collection_or_new(collection or f"round {self._count}")
        result = Ingest(library, models, made, IngestOptions(kv=kv)).run([docs])
        assert not result.failed, result.failed
        return result

    def _documents(self, case: str, count: int, characters: int) -> Path:
        return write_documents(self.folder / case, self.texts, count, characters, self.options.seed)

    def _place(self, name: str) -> Path:
        self._count += 1
        return self.folder / f"{name} {self._count}"

    def _row(self, case: str, result: IngestResult, seconds: float, baseline: float) -> Row:
        return {
            "case": case,
            "documents": result.added,
            "tokens": result.tokens,
            "seconds": seconds,
            "baseline_s": baseline,
            "ratio": baseline / seconds,
        }


def _drafts(library: Library, models: Models, docs: Path) -> list[Draft]:
    """As an ingest cuts them."""
    splitter = library.splitter(library.collection_or_new("drafts"))
    return [draft(str(path), FileStamp("", 0, 0), load(path), splitter) for path in sorted(docs.iterdir())]


def _prefill_all(cache: ChunkCache, system: Variant, documents: Sequence[Sequence[Chunk]]) -> None:
    """Each document in one piece behind System, of which nothing is kept."""
    for chunks in documents:
        ids = [token for chunk in chunks for token in chunk.ids]
        buffer = cache.engine.buffer(len(system) + len(ids))
        cache.engine.place(buffer, system, 0)
        hidden = cache.engine.compute(ids, range(len(system), len(system) + len(ids)), buffer)
        float(hidden.float().sum())  # on an accelerator: wait until it is done


def _timed(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started
