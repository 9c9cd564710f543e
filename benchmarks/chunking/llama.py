"""llama-index's splitters, and its own retrieval over the chunks that they make."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from typing import Any

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import NodeParser, SemanticSplitterNodeParser, SentenceSplitter
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, TextNode

from benchmarks.chunking import HYBRID, VECTOR
from benchmarks.chunking.collections import CorpusCollections, CutText, Find
from benchmarks.chunking.data import Corpus, Span
from retriever import IntArray
from retriever.embedder import Embedder
from retriever.llama.adapters import HybridRetriever, LocalEmbedding
from retriever.searcher import DEFAULTS, KEYWORD, SearchOptions
from splitter.base import Piece, Tokens

NAME = "llama-index"
SENTENCE_TOKENS = (200, 400)
# Of its SentenceSplitter. Measured, it does better with this much than with none.
OVERLAP = 0.1
FUSIONS = (FUSION_MODES.RECIPROCAL_RANK, FUSION_MODES.RELATIVE_SCORE)
BM25_MODULE, BM25_PACKAGE = "llama_index.retrievers.bm25", "llama-index-retrievers-bm25"
STAND_IN = ", our words"  # what a fusion is named with where that package is not installed

Split = Callable[[Corpus], list[Piece]]


def llama_splitters(tokens: Tokens, embedder: Embedder) -> dict[str, Split]:
    made: dict[str, Split] = {}
    for size in SENTENCE_TOKENS:
        counted = SentenceSplitter(
            chunk_size=size, chunk_overlap=int(size * OVERLAP), tokenizer=lambda text: range(tokens.count(text))
        )
        made[f"{NAME} SentenceSplitter({size})"] = _split(counted)
    semantic = SemanticSplitterNodeParser(embed_model=LocalEmbedding(embedder))
    return made | {f"{NAME} SemanticSplitterNodeParser": _split(semantic)}


def llama_finders(
    collections: CorpusCollections, cut: CutText, retrievals: Collection[str], top_k: int
) -> Iterator[tuple[str, Find]]:
    """Its retrieval beside ours of the same kind. A fusion takes as many hits of each kind as ours does."""
    nodes = _nodes(cut)
    depth = min(max(DEFAULTS.depth, 2 * top_k), len(nodes))
    index = VectorStoreIndex(nodes, embed_model=LocalEmbedding(collections.models.embedder))
    if VECTOR in retrievals:
        yield f"{NAME} vector", _find(index.as_retriever(similarity_top_k=top_k))
    if HYBRID in retrievals:
        by_words, note = _by_words(collections, cut, nodes, depth)
        for mode in FUSIONS:
            fusion = QueryFusionRetriever(
                [index.as_retriever(similarity_top_k=depth), by_words],
                llm=MockLLM(),  # never asked: there is one query, the question
                mode=mode,
                similarity_top_k=top_k,
                num_queries=1,
                use_async=False,
            )
            yield f"{NAME} {mode.value}{note}", _find(fusion)


def _by_words(
    collections: CorpusCollections, cut: CutText, nodes: Sequence[BaseNode], depth: int
) -> tuple[BaseRetriever, str]:
    """With what the rows say of it."""
    try:
        module: Any = import_module(BM25_MODULE)
    except ModuleNotFoundError:
        return _our_words(collections, cut, nodes, depth), STAND_IN
    return module.BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=depth), ""


def _our_words(collections: CorpusCollections, cut: CutText, nodes: Sequence[BaseNode], depth: int) -> BaseRetriever:
    known = dict(zip(cut.chunk_ids, nodes, strict=True))

    def by_ids(ids: IntArray) -> list[BaseNode]:
        return [known[one] for one in ids.tolist()]

    return HybridRetriever(
        collections.library.searcher(cut.collection), by_ids, depth, options=SearchOptions(mode=KEYWORD)
    )


def _nodes(cut: CutText) -> list[BaseNode]:
    return [
        TextNode(text=text, start_char_idx=piece.start, end_char_idx=piece.end)
        for piece, text in zip(cut.pieces, cut.texts(), strict=True)
    ]


def _find(retriever: BaseRetriever) -> Find:
    return lambda question: [_span(found.node) for found in retriever.retrieve(question)]


def _split(parser: NodeParser) -> Split:
    """Its nodes; llama-index finds the text of each in the document, and what it does not find is left out."""

    def split(corpus: Corpus) -> list[Piece]:
        nodes = parser.get_nodes_from_documents([Document(text=corpus.text)])
        return [Piece(*_span(node)) for node in nodes if isinstance(node, TextNode) and node.start_char_idx is not None]

    return split


def _span(node: BaseNode) -> Span:
    assert isinstance(node, TextNode) and node.start_char_idx is not None and node.end_char_idx is not None
    return node.start_char_idx, node.end_char_idx
