"""An embedding of ours as llama-index's splitters take it."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.embeddings import BaseEmbedding
from pydantic import PrivateAttr

from splitter.base import Embed


class Wrapped(BaseEmbedding):
    _embed: Embed = PrivateAttr()

    def _get_text_embeddings(self, texts: Sequence[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._embed(texts).tolist()
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def wrapped(embed: Embed) -> Wrapped:
    made = Wrapped(model_name="ragcache", embed_batch_size=256)
    made._embed = embed
    return made
