"""EPIC's AttnLink (section 4.2): the tokens around each boundary between two chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragcache.linking.base import LinkedPrompt, Linker, Positions
from ragcache.linking.limits import require_count
from ragcache.linking.selection import heads_of, repairable, tails_of, union


@dataclass(frozen=True)
class Boundary(Linker):
    """Half of `k` from the end of the chunk before the boundary, half (the larger, if odd) from the start of the next.

    A boundary has a chunk on both sides: the prompt's first chunk keeps its head, its last one keeps its tail. A side
    that is not cached is computed anyway, and the other side is repaired all the same.
    """

    name: ClassVar[str] = "boundary"
    k: int = 16  # tokens of each boundary

    def __post_init__(self) -> None:
        require_count(self.name, "k", self.k)

    def select(self, prompt: LinkedPrompt) -> Positions:
        chunks = repairable(prompt)
        before = tails_of([chunk for chunk in chunks if chunk.end < prompt.question], self.k // 2)
        after = heads_of([chunk for chunk in chunks if chunk.index > 0], self.k - self.k // 2)
        return union([before, after])
