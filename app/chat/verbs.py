"""EPIC's three verbs, for Python programs: a pipeline has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.answering import Answer
from app.chat.contexts import ContextRequest, Contexts
from app.chat.messages import turns_of
from app.library import Library
from app.models import Models
from ragcache.sampling import Sampling
from retriever.shared_property import shared_property

if TYPE_CHECKING:
    from app.chat.chat import ChatAnswering


class ContextVerbs:
    """Of what holds a library and its models."""

    library: Library
    models: Models

    @property
    def chat(self) -> ChatAnswering:
        """What answers messages."""
        raise NotImplementedError

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

    def chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        linker: str | None = None,
    ) -> Answer:
        """The answer to messages as OpenAI writes them, in which context caches stand in any order and number. Raises
        NotFound for one that is not there.
        """
        from app.chat.chat import ChatOptions

        options = ChatOptions(max_tokens, sampling, stop, linker)
        return self.chat.start(turns_of(messages), options, self.contexts.resolver()).answer

    def expire_cache(self, cache_id: str) -> None:
        """With its KV, as far as nobody else has the same text. Raises NotFound."""
        self.contexts.expire(cache_id)
