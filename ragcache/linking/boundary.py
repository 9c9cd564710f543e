"""EPIC: chunks that were computed alone are mended where they meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragcache.linking.base import LinkedPrompt, Linker, Positions, heads_of, tails_of, union


@dataclass(frozen=True)
class FirstTokens(Linker):
    """The head of every chunk, which acts as an attention sink when it is computed alone; but for the prompt's first
    one, where a sink belongs.
    """

    name: ClassVar[str] = "first_tokens"
    k: int = 16  # tokens of each chunk

    def __post_init__(self) -> None:
        self.require_count("k")

    def select(self, prompt: LinkedPrompt) -> Positions:
        return heads_of([chunk for chunk in prompt.repairable if chunk.index > 0], self.k)


@dataclass(frozen=True)
class Boundary(Linker):
    """AttnLink (section 4.2), the tokens around each boundary between two chunks: half of `k` from the end of the chunk
    before it, half (the larger, if odd) from the start of the next.

    A boundary has a chunk on both sides: the prompt's first chunk keeps its head, its last one keeps its tail. A side
    that is not cached is computed anyway, and the other side is repaired all the same.
    """

    name: ClassVar[str] = "boundary"
    k: int = 16  # tokens of each boundary

    def __post_init__(self) -> None:
        self.require_count("k")

    def select(self, prompt: LinkedPrompt) -> Positions:
        chunks = prompt.repairable
        before = tails_of([chunk for chunk in chunks if chunk.end < prompt.question], self.k // 2)
        after = heads_of([chunk for chunk in chunks if chunk.index > 0], self.k - self.k // 2)
        return union([before, after])
