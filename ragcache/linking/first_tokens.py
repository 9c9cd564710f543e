"""EPIC: the first tokens of each chunk act as attention sinks when computed alone; recompute them in the new prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragcache.linking.base import LinkedPrompt, Linker, Positions
from ragcache.linking.limits import require_count
from ragcache.linking.selection import heads_of, repairable


@dataclass(frozen=True)
class FirstTokens(Linker):
    """The head of every chunk but the prompt's first one, which is where a sink belongs."""

    name: ClassVar[str] = "first_tokens"
    k: int = 16  # tokens of each chunk

    def __post_init__(self) -> None:
        require_count(self.name, "k", self.k)

    def select(self, prompt: LinkedPrompt) -> Positions:
        return heads_of([chunk for chunk in repairable(prompt) if chunk.index > 0], self.k)
