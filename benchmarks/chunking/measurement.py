"""Each splitter over all corpora, and each retrieval over its chunks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from tqdm import tqdm

from app.models import Models
from app.settings import Settings
from benchmarks.chunking import ChunkingBenchOptions
from benchmarks.chunking.collections import CorpusCollections, CutText, Find, collections_apart
from benchmarks.chunking.data import Corpus, Span, SpanQuestion, read_corpora, read_questions, united
from benchmarks.chunking.llama import BM25_PACKAGE, NAME, OVERLAP, Split, llama_finders, llama_splitters
from benchmarks.output import Row, publish
from ragcache.errors import ConfigError
from splitter.base import ChunkLimits, Piece

OURS = Path(__file__).parent / "texts"
ALL = "all"
Score = tuple[float, float, float]  # recall, precision, IoU


@dataclass(frozen=True)
class MarkedCorpora:
    corpora: Mapping[str, Corpus]
    questions: Sequence[SpanQuestion]


def main(settings: Settings, options: ChunkingBenchOptions, out: Path | None) -> list[Row]:
    asked = _asked(options)
    rows: list[Row] = []
    with collections_apart(settings) as collections:
        collections.models.embedder.embed(["warm"])  # the model is read at its first use
        for name, split in tqdm(splitters(collections.models, options).items(), desc="chunking", unit="splitter"):
            rows += measure(name, split, asked, collections, options)
    described = {name: getattr(settings, name) for name in ("model", "embedder", "reranker", "vector_share", "fusion")}
    described |= {"sentence_splitter_overlap": OVERLAP, NAME: _version("llama-index-core")}
    told = {BM25_PACKAGE: _version(BM25_PACKAGE), "corpora": list(asked.corpora), "questions": len(asked.questions)}
    publish(described | options.settings() | asdict(options.limits) | told, rows, out)
    return rows


def _asked(options: ChunkingBenchOptions) -> MarkedCorpora:
    if (options.corpora is None) != (options.questions is None):
        raise ConfigError("--corpora and --questions go together: give both, or neither for the texts that we wrote")
    questions = read_questions(options.questions or OURS / "questions.jsonl")
    return MarkedCorpora(read_corpora(options.corpora or OURS, questions), questions)


def splitters(models: Models, options: ChunkingBenchOptions) -> Mapping[str, Split]:
    """Ours by their names, and those of llama-index."""
    made = {name: _ours(models, name, options.limits) for name in options.splitters}
    if "auto" in made:
        made["auto, without headings"] = _bare(made["auto"])
    return made | (llama_splitters(models.template.tokens, models.embedder) if options.peers else {})


def measure(
    name: str, split: Split, asked: MarkedCorpora, collections: CorpusCollections, options: ChunkingBenchOptions
) -> list[Row]:
    """Rows of one splitter."""
    cuts: list[CutText] = []
    seconds: dict[str, float] = {}
    scores: dict[str, dict[str, list[Score]]] = defaultdict(dict)  # by retrieval and corpus
    for corpus in asked.corpora.values():
        start = time.perf_counter()
        pieces = split(corpus)
        seconds[corpus.name] = time.perf_counter() - start
        cuts.append(collections.fill(corpus, pieces))
        questions = [question for question in asked.questions if question.corpus == corpus.name]
        for retrieval, find in _finders(name, collections, cuts[-1], options):
            found = [overlap(question.references, find(question.text)) for question in questions]
            scores[retrieval][corpus.name] = found
    rows: list[Row] = []
    for retrieval, of_corpora in scores.items():
        groups = {ALL: cuts} | ({cut.corpus.name: [cut] for cut in cuts} if options.by_corpus else {})
        for group, chosen in groups.items():
            corpus_named = {"corpus": group} if options.by_corpus else {}
            names = [cut.corpus.name for cut in chosen]
            figures = _figures(chosen, [score for corpus in names for score in of_corpora[corpus]])
            spent = sum(seconds[corpus] for corpus in names)
            rows.append({"splitter": name, "retrieval": retrieval} | corpus_named | figures | {"seconds": spent})
    return rows


def overlap(references: Sequence[Span], retrieved: Sequence[Span]) -> Score:
    """Recall, precision and IoU of one question, over characters, each counted once."""
    wanted, got = united(list(references)), united(list(retrieved))
    shared = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in wanted for b in got)
    answer, read = (sum(end - start for start, end in spans) for spans in (wanted, got))
    return shared / answer, shared / max(read, 1), shared / (answer + read - shared)


def _finders(
    name: str, collections: CorpusCollections, cut: CutText, options: ChunkingBenchOptions
) -> Iterator[tuple[str, Find]]:
    for retrieval in options.retrieval:
        yield retrieval, collections.finder(cut, retrieval, options.top_k)
    if name.startswith(NAME):
        yield from llama_finders(collections, cut, options.retrieval, options.top_k)


def _figures(cuts: Sequence[CutText], scores: Sequence[Score]) -> dict[str, float | int]:
    recall, precision, iou = np.mean(scores, axis=0)
    counts = [tokens for cut in cuts for tokens in cut.tokens]
    return {
        "recall": float(recall),
        "precision": float(precision),
        "iou": float(iou),
        "mean_tokens": float(np.mean(counts)),
        "chunks": len(counts),
    }


def _ours(models: Models, name: str, limits: ChunkLimits) -> Split:
    splitter = models.splitter(name, asdict(limits))
    return lambda corpus: splitter.split(corpus.text, corpus.kind)


def _bare(split: Split) -> Split:
    """The same chunks, found without their headings."""
    return lambda corpus: [Piece(piece.start, piece.end) for piece in split(corpus)]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
