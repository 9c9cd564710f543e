"""What every cache offers, so that an application serves whichever engine it was given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from ragcache.ingest import Ingest
from ragcache.report import Report
from ragcache.sampling import Sampling
from ragcache.types import Segment


class TokenStream(ABC):
    """An iterator over an answer's tokens, once. `report` is complete when it ends; `tokens` are those so far.

    One thread reads it. Reading raises ModelError when the engine breaks meanwhile.
    """

    report: Report
    tokens: list[int]

    @abstractmethod
    def __iter__(self) -> Iterator[int]: ...

    @abstractmethod
    def close(self) -> None:
        """End the answer here and free its prompt's KV; nothing happens when it has ended."""


class PromptCache(Ingest, ABC):
    """Captures chunks, and answers prompts that are made of them. Threads may share it."""

    @abstractmethod
    def generate(
        self,
        segments: Sequence[Segment],
        *,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        linker: str | None = None,
        stop: frozenset[int] = frozenset(),
    ) -> TokenStream:
        """Answer a prompt: greedily, and with the cache's own linker, unless others are given.

        Raises PromptError for a prompt that is malformed or too long, ConfigError for a linker that cannot be used.
        """
