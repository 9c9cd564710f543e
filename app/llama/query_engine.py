"""A query engine over stored KV."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine

from app.llama.retriever import CatalogRetriever
from app.llama.synthesizer import CachedSynthesizer
from app.pipeline.pipeline import RagPipeline


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
