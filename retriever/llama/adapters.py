"""Our embedder as an embedding model of llama-index, and a Searcher as its retriever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from retriever import IntArray
from retriever.embedder import Embedder
from retriever.searcher import DEFAULTS, Searcher, SearchOptions
from retriever.source import Where

Nodes = Callable[[IntArray], Sequence[BaseNode | None]]


class LocalEmbedding(BaseEmbedding):
    """Vectors have length 1, so a dot product is the cosine."""

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: Embedder, **settings: Any) -> None:
        super().__init__(**{"model_name": embedder.folder.name, "embed_batch_size": 512} | settings)
        self._embedder = embedder

    @classmethod
    def class_name(cls) -> str:
        return "LocalEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        vector: list[float] = self._embedder.embed_query(query).tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._embedder.embed(texts).tolist()
        return vectors

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


class HybridRetriever(BaseRetriever):
    """`nodes` gives the nodes of chunks by id, in order; None for a chunk that has gone since it was found."""

    def __init__(
        self,
        searcher: Searcher,
        nodes: Nodes,
        k: int = 5,
        where: Where | None = None,
        options: SearchOptions = DEFAULTS,
        **settings: Any,
    ) -> None:
        self._searcher = searcher
        self._nodes = nodes
        self._k = k
        self._where = where
        self._options = options
        super().__init__(**settings)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        given = query_bundle.embedding
        hits = self._searcher.search(
            query_bundle.query_str,
            self._k,
            where=self._where,
            options=self._options,
            vector=None if given is None else np.asarray(given, dtype=np.float32),
        )
        nodes = self._nodes(np.array([hit.id for hit in hits], dtype=np.int64))
        return [
            NodeWithScore(node=node, score=hit.score) for hit, node in zip(hits, nodes, strict=True) if node is not None
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
