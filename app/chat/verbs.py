"""EPIC's three verbs, for Python programs: a pipeline has them."""

from __future__ import annotations

from collections.abc import Sequence

from app.chat.contexts import ContextRequest, Contexts
from app.library import Library
from app.models import Models
from retriever.shared_property import shared_property


class ContextVerbs:
    """Of what holds a library and its models."""

    library: Library
    models: Models

    @shared_property
    def contexts(self) -> Contexts:
        return Contexts(self.library, self.models)

    def generate_context_cache(
        self,
        chunks: Sequence[str] | Sequence[Sequence[int]],
        *,
        split: str | None = None,
        ttl: float | None = None,
        pinned: bool = False,
    ) -> str:
        """The KV of static texts, or lists of tokens, computed now -> an id for messages. Fields of ContextRequest."""
        texts = [one for one in chunks if isinstance(one, str)]
        tokens = [one for one in chunks if not isinstance(one, str)]
        return self.contexts.create(ContextRequest(texts, tokens, split, ttl, pinned)).id

    def expire_cache(self, cache_id: str) -> None:
        """With its KV, as far as nobody else has the same text. Raises NotFound."""
        self.contexts.expire(cache_id)
