"""A Searcher as a retriever of llama-index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from retriever import IntArray
from retriever.searcher import DEFAULTS, Searcher, SearchOptions
from retriever.source import Where

Nodes = Callable[[IntArray], Sequence[BaseNode | None]]


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
