"""A query engine over stored KV, and the documents of a collection as a retriever of llama-index."""

from __future__ import annotations

from typing import Any, Unpack

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle

from app.answering import AskOptions
from app.answering.pipeline import RagPipeline
from app.llama.synthesizer import CachedSynthesizer, as_node
from app.models.cores import in_thread


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


class CachedQueryEngine(RetrieverQueryEngine):
    """llama-index's engine around a retriever, with our synthesizer: sync, async and streaming."""

    def __init__(
        self,
        pipeline: RagPipeline,
        retriever: BaseRetriever | None = None,
        *,
        streaming: bool = False,
        node_postprocessors: list[BaseNodePostprocessor] | None = None,
        callback_manager: CallbackManager | None = None,
        **request: Any,
    ) -> None:
        """The pipeline's own collection is searched unless there is a retriever. `request`: see CachedSynthesizer."""
        given = {"max_tokens": pipeline.settings.max_tokens} | request
        super().__init__(
            retriever or CatalogRetriever(pipeline),
            CachedSynthesizer(pipeline.answering, streaming=streaming, callback_manager=callback_manager, **given),
            node_postprocessors,
            callback_manager,
        )
