"""Each splitter over all corpora."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core import Document
from llama_index.core.node_parser import SemanticSplitterNodeParser, SentenceSplitter
from llama_index.core.schema import MetadataMode

from app.models import resolve_model
from app.models.chat_template import load_tokenizer
from app.models.embedding import SentenceEmbedder
from app.models.loading import load_embedder
from app.settings import Settings
from benchmarks.chunking import ChunkingBenchOptions
from benchmarks.chunking.data import Corpus, Span, SpanQuestion, read_corpora, read_questions, united
from benchmarks.chunking.llama import wrapped
from benchmarks.output import publish
from splitter import SPLITTERS, make_splitter
from splitter.base import ChunkLimits, Embed, FastTokens, Tokens

SENTENCE_TOKENS = (200, 400)
# Of llama-index's SentenceSplitter. Measured, it does better with this much than with none.
OVERLAP = 0.1


@dataclass(frozen=True)
class Cut:
    """A chunk, and what is embedded of it."""

    span: Span
    embedded: str


Split = Callable[[Corpus], list[Cut]]


@dataclass(frozen=True)
class Embeddings:
    chunks: Embed  # and questions
    sentences: Embed  # what our splitters compare


def main(settings: Settings, options: ChunkingBenchOptions, out: Path) -> None:
    questions = read_questions(options.questions)
    corpora = read_corpora(options.corpora, questions)
    tokens = FastTokens(load_tokenizer(resolve_model(settings.model, settings.cache_dir)))
    embedder = load_embedder(settings)
    embeddings = Embeddings(embedder.embed, SentenceEmbedder(embedder).embed)
    for embed in (embeddings.chunks, embeddings.sentences):
        embed(["warm"])  # the model is read at its first use
    rows = [
        measure(name, split, corpora, questions, tokens, embeddings.chunks, options.top_k)
        for name, split in splitters(tokens, embeddings, options.limits).items()
    ]
    described = {"model": settings.model, "embedder": settings.embedder, "sentence_splitter_overlap": OVERLAP}
    asked = {"corpora": list(corpora), "questions": len(questions)}
    publish(described | options.told() | asdict(options.limits) | asked, rows, out)


def splitters(tokens: Tokens, embeddings: Embeddings, limits: ChunkLimits) -> Mapping[str, Split]:
    """Ours by their names, and those of llama-index."""
    made: dict[str, Split] = {name: _ours(name, tokens, embeddings.sentences, limits) for name in SPLITTERS}
    made["auto, headings not embedded"] = _bare(made["auto"])
    for size in SENTENCE_TOKENS:
        made[f"llama-index SentenceSplitter({size})"] = _sentences(size, tokens)
    return made | {"llama-index SemanticSplitterNodeParser": _semantic(embeddings.chunks)}


def measure(
    name: str,
    split: Split,
    corpora: Mapping[str, Corpus],
    questions: Sequence[SpanQuestion],
    tokens: Tokens,
    embed: Embed,
    top_k: int,
) -> dict[str, Any]:
    start = time.perf_counter()
    cuts = {corpus.name: split(corpus) for corpus in corpora.values()}
    seconds = time.perf_counter() - start
    scores: list[tuple[float, float, float]] = []
    counts: list[int] = []
    for corpus in corpora.values():
        spans = [cut.span for cut in cuts[corpus.name]]
        counts += (tokens.count(corpus.text[first:last]) for first, last in spans)
        asked = [question for question in questions if question.corpus == corpus.name]
        chunks = embed([cut.embedded for cut in cuts[corpus.name]])
        nearness = embed([question.text for question in asked]) @ chunks.T  # [questions, chunks]
        best = np.argsort(-nearness, axis=1, kind="stable")[:, :top_k]
        for question, places in zip(asked, best, strict=True):
            scores.append(overlap(question.references, [spans[place] for place in places]))
    recall, precision, iou = np.mean(scores, axis=0)
    return {
        "splitter": name,
        "recall": float(recall),
        "precision": float(precision),
        "iou": float(iou),
        "mean_tokens": float(np.mean(counts)),
        "chunks": len(counts),
        "seconds": seconds,
    }


def overlap(references: Sequence[Span], retrieved: Sequence[Span]) -> tuple[float, float, float]:
    """Recall, precision and IoU of one question, over characters, each counted once."""
    wanted, got = united(list(references)), united(list(retrieved))
    shared = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in wanted for b in got)
    answer, read = (sum(end - start for start, end in spans) for spans in (wanted, got))
    return shared / answer, shared / max(read, 1), shared / (answer + read - shared)


def _ours(name: str, tokens: Tokens, embed: Embed, limits: ChunkLimits) -> Split:
    splitter = make_splitter(name, tokens, embed, limits)
    return lambda corpus: [
        Cut((piece.start, piece.end), piece.embedded(corpus.text)) for piece in splitter.split(corpus.text, corpus.kind)
    ]


def _bare(split: Split) -> Split:
    """The same chunks, embedded as they stand."""
    return lambda corpus: [Cut(cut.span, corpus.text[slice(*cut.span)]) for cut in split(corpus)]


def _sentences(size: int, tokens: Tokens) -> Split:
    parser = SentenceSplitter(
        chunk_size=size, chunk_overlap=int(size * OVERLAP), tokenizer=lambda text: range(tokens.count(text))
    )
    return lambda corpus: _parsed(parser, corpus)


def _semantic(embed: Embed) -> Split:
    parser = SemanticSplitterNodeParser(embed_model=wrapped(embed))
    return lambda corpus: _parsed(parser, corpus)


def _parsed(parser: Any, corpus: Corpus) -> list[Cut]:
    """Its nodes; llama-index finds the text of each in the document, and embeds it with its metadata."""
    nodes = parser.get_nodes_from_documents([Document(text=corpus.text)])
    return [
        Cut((node.start_char_idx, node.end_char_idx), node.get_content(MetadataMode.EMBED))
        for node in nodes
        if node.start_char_idx is not None
    ]
