"""What a chat is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ragcache.types import Chunk

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class TextPart:
    text: str


@dataclass(frozen=True)
class CachePart:
    """Text whose KV was computed before, by the id of its context cache."""

    cache_id: str


@dataclass(frozen=True)
class ChatTurn:
    role: Role
    parts: tuple[TextPart | CachePart, ...]

    @property
    def texts(self) -> list[str]:
        return [part.text for part in self.parts if isinstance(part, TextPart)]

    @property
    def caches(self) -> list[CachePart]:
        return [part for part in self.parts if isinstance(part, CachePart)]


# The chunks of a context cache, by its id. Raises NotFound for one that is not there for whoever asks.
Resolve = Callable[[str], Sequence[Chunk]]
