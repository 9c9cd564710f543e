"""Each case against its baseline, in turns."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tqdm import tqdm

from app.compose import opened
from app.ingestion import IngestOptions, IngestResult
from app.ingestion.draft import Draft, draft
from app.ingestion.ingest import Ingest
from app.ingestion.worker import FileStamp
from app.library import Library
from app.loaders import load
from app.models import Models
from app.models.sentences import sentences_of
from app.settings import Settings
from benchmarks.caches import plain_prefill
from benchmarks.corpus import read_texts
from benchmarks.ingest import IngestBenchOptions
from benchmarks.ingest.files import write_documents
from benchmarks.output import Row, common_settings, publish
from benchmarks.timing import timed
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ConfigError
from ragcache.store import open_store
from splitter.base import below_headings

SHORT, MIDDLE, LONG = 200, 8_000, 16_000  # characters of a document in each case


def main(settings: Settings, options: IngestBenchOptions, out: Path) -> None:
    run(settings, read_texts(options.data), options, out)


def run(settings: Settings, texts: Sequence[str], options: IngestBenchOptions, out: Path | None) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(settings.model_copy(update={"data_dir": Path(folder, "data")}), texts, options, Path(folder))
        measure = {"unchanged": bench.unchanged, "embed": bench.embed, "kv": bench.kv}
        rows = [measure[case]() for case in tqdm(options.cases, desc="ingest", unit="case")]
        with Models(bench.settings) as models:
            publish(common_settings(models.language) | options.settings(), rows, out)
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
        flags = [
            "--kv",
            "on-use",
            "--data-dir",
            str(self.settings.data_dir),
            "--cache-dir",
            str(self.settings.cache_dir),
        ]
        command = [sys.executable, "-c", "from app.cli import main; main()", "ingest", str(docs), "-c", "unchanged"]
        seconds = [timed(lambda: subprocess.run([*command, *flags], check=True, stdout=subprocess.DEVNULL))
                   for _ in range(self.options.rounds)]  # fmt: skip
        return self._row("unchanged", first, median(seconds), first.seconds)

    def embed(self) -> Row:
        docs = self._documents("embed", self.options.embed_documents, MIDDLE)
        with opened(self.settings) as (library, models):
            drafts = _drafts(library, models, docs)
            chunks = [below_headings(*one) for draft in drafts for one in draft.headed()]
            texts = [text for draft in drafts for text in draft.texts()]
            sentences = list(dict.fromkeys(one for text in texts for one in sentences_of(text)))
            models.embedder.embed(chunks[:8])
            return self._compare(
                "embed",
                lambda: timed(lambda: (models.embedder.embed(chunks), models.embedder.embed(sentences))),
                lambda: self._ingest(library, models, docs, kv=False),
            )

    def kv(self) -> Row:
        docs = self._documents("kv", self.options.kv_documents, LONG)
        with opened(self.settings) as (library, models):
            cache, system = models.cache, models.template.system()
            if not isinstance(cache.engine, TorchEngine):
                raise ConfigError("case kv compares with a plain prefill by the torch engine: choose that one")
            documents = [list(one.segments(models.template)) for one in _drafts(library, models, docs)]
            behind = cache.kvgen.system(system)

            def ingest() -> IngestResult:
                fresh = open_store(self._place("kv"), ram_bytes=0, codec=self.settings.codec)
                models.store = fresh
                models.cache = models.language.cache(fresh)
                return self._ingest(library, models, docs, kv=True)

            def prefill() -> None:
                for chunks in documents:
                    plain_prefill(cache, behind, chunks)

            return self._compare("kv", lambda: timed(prefill), ingest)

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
        del models.sentences  # which remembers those of the round before
        made = library.collection_or_new(collection or f"round {self._count}")
        result = Ingest(library, models, made, IngestOptions(kv="eager" if kv else "on-use")).run([docs])
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
