"""What a question may ask for beside its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ragcache.errors import ConfigError

if TYPE_CHECKING:
    from app.prompt import Turn
    from ragcache.sampling import Sampling

Where = Mapping[str, Sequence[int | str]]


class AskOptions(TypedDict, total=False):
    """For callers; each is explained at Asked."""

    collection: str | None
    top_k: int | None
    where: Where | None
    max_tokens: int | None
    linker: str | None
    sampling: Sampling | None
    history: Sequence[Turn]
    quotes: bool


@dataclass(frozen=True)
class Asked:
    """What is None is as in the settings. An unknown name raises TypeError."""

    collection: str | None = None
    top_k: int | None = None
    where: Where | None = None  # {"document": ids or sources, "source": …, "kind": …}: only chunks of these
    max_tokens: int | None = None
    linker: str | None = None  # "full" uses no cache
    sampling: Sampling | None = None  # greedy when None
    history: Sequence[Turn] = ()  # earlier questions with their answers; a Conversation keeps its own
    quotes: bool = True  # whether each citation shall name its best sentence

    def __post_init__(self) -> None:
        for name in ("top_k", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: ask for at least 1")
