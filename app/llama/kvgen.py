"""KV at ingest, as a step of llama-index's ingestion."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent

from app.answering.answerer import Answering


class KVGenTransform(TransformComponent):
    """Put it behind the node parser: it computes and stores the KV of the nodes, each document in its order, and hands
    them on as they are. Without it the first answer that uses a node does.
    """

    _answering: Answering = PrivateAttr()

    def __init__(self, answering: Answering) -> None:
        super().__init__()
        self._answering = answering

    @classmethod
    def class_name(cls) -> str:
        return "RagcacheKVGen"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        template, cache = self._answering.template, self._answering.cache
        texts = [(node.ref_doc_id or node.node_id, node.get_content(MetadataMode.NONE)) for node in nodes]
        for _, document in groupby((one for one in texts if one[1].strip()), key=lambda one: one[0]):
            for _variant in cache.ingest(template.system(), [template.chunk(text) for _, text in document]):
                pass  # stored; nothing else is wanted of it
        return nodes
