"""The documents of a collection, as a retriever of llama-index."""

from __future__ import annotations

from typing import Unpack

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from app.cores import in_thread
from app.llama.nodes import as_node
from app.pipeline.options import AskOptions
from app.pipeline.pipeline import RagPipeline


class CatalogRetriever(BaseRetriever):
    """Takes the options of `RagPipeline.retrieve`: collection, top_k, where."""

    def __init__(self, pipeline: RagPipeline, **options: Unpack[AskOptions]) -> None:
        self._pipeline = pipeline
        self._options = options
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [as_node(one) for one in self._pipeline.retrieve(query_bundle.query_str, **self._options)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await in_thread(self._retrieve, query_bundle)
