"""What a chat is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ragcache.errors import PromptError
from ragcache.types import Chunk

Role = Literal["system", "user", "assistant"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant")


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


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[ChatTurn]:
    """Messages as OpenAI writes them; {"type": "context_cache", "cache_id": …} may be a part. Raises PromptError."""
    return [_turn(message) for message in messages]


def _turn(message: Mapping[str, Any]) -> ChatTurn:
    content = message.get("content")
    role = next((one for one in ROLES if one == message.get("role")), None)
    if role is None:
        raise PromptError(f"a message has the role {message.get('role')!r:.40}: choose from {', '.join(ROLES)}")
    if isinstance(content, str):
        return ChatTurn(role, (TextPart(content),))
    if not isinstance(content, Sequence) or not content:
        raise PromptError(f"a message of the {role} has the content {content!r:.40}: give a text, or a list of parts")
    return ChatTurn(role, tuple(map(_part, content)))


def _part(part: object) -> TextPart | CachePart:
    match part:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "context_cache", "cache_id": str(cache_id)}:
            return CachePart(cache_id)
    raise PromptError(
        f'{part!r:.80} is no part of a message: give {{"type": "text", "text": …}} or one of a context_cache'
    )
