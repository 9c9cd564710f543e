"""How well chunks serve retrieval: recall, precision and IoU of characters, ours and llama-index's.

A row is a splitter and a way of finding its chunks. Each corpus has a collection of its own, which is filled and asked
as the product does it (collections.py); what is found are its chunks for a question about it. Over the characters they
hold: recall is the part of the answer that they hold, precision the part of them that is answer, IoU the answer that
they hold over both together. Means over the questions; with --by-corpus there are rows of each corpus too.

| retrieval | what finds the chunks |
|---|---|
| vector, words, hybrid | RagPipeline.retrieve with RAGCACHE_RETRIEVAL=vector, keyword, hybrid |
| llama-index vector | its VectorStoreIndex with our embedder, where `vector` is measured |
| llama-index reciprocal_rerank, relative_score | its QueryFusionRetriever over that and BM25, where `hybrid` is |

A hybrid's share of meaning is what each collection learns at its ingest, unless RAGCACHE_VECTOR_SHARE is set.

llama-index's retrieval is measured over llama-index's chunks. Its BM25Retriever is in llama-index-retrievers-bm25:
where that is not installed, our words stand in for it, and the row says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import some_of
from benchmarks.options import BenchOptions, option
from splitter import SPLITTERS
from splitter.base import ChunkLimits

VECTOR, WORDS, HYBRID = "vector", "words", "hybrid"


@dataclass(frozen=True)
class ChunkingBenchOptions(BenchOptions):
    """How much of an answer is in the chunks that are retrieved for its question, by splitter and retrieval."""

    of_settings = ("model", "device", "cache_dir")

    corpora: Path | None = option(
        None, "Folder of the texts that the questions name; or six that we wrote for this.", kind=Path, told=False
    )
    questions: Path | None = option(
        None, "JSON lines with corpus, question and references; or our 210.", kind=Path, told=False
    )
    retrieval: tuple[str, ...] = option(
        "vector,words,hybrid", "With commas between them.", read=some_of(VECTOR, WORDS, HYBRID)
    )
    splitters: tuple[str, ...] = option(
        ",".join(SPLITTERS), "Ours, with commas between them.", read=some_of(*SPLITTERS)
    )
    peers: bool = option(True, "llama-index's splitters and retrievers too.", flag="peers/--no-peers")
    by_corpus: bool = option(False, "Rows of each corpus, beside those of all questions.")
    top_k: int = option(5, "Chunks that are retrieved for a question.", least=1)
    min_tokens: int = option(32, "Fewest tokens of a chunk of ours.", least=1)
    max_tokens: int = option(240, "Most tokens of a chunk of ours.", least=8)

    @property
    def limits(self) -> ChunkLimits:
        return ChunkLimits(self.min_tokens, self.max_tokens)
