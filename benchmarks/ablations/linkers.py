"""Cache-Craft's repair without one of its parts. They tell what the part is worth, and serve nobody."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ragcache.linking.base import LinkedPrompt, PlacedChunk, Positions, union
from ragcache.linking.baselines import by_lot
from ragcache.linking.cci import ContextImpact


@dataclass(frozen=True)
class WithoutOverlap(ContextImpact):
    """Without beta: N = ⌈alpha · CCI · |C|⌉, whatever of its old context stands before the chunk."""

    name: ClassVar[str] = "cci_without_beta"

    def _count(self, chunk: PlacedChunk) -> int:
        return super()._count(replace(chunk, reuse=replace(chunk.reuse, beta=0.0)))


@dataclass(frozen=True)
class WithoutRanking(ContextImpact):
    """Without CCI to choose them: as many tokens of each chunk, by lot."""

    name: ClassVar[str] = "cci_by_lot"
    seed: int = 0

    def select(self, prompt: LinkedPrompt) -> Positions:
        return union(by_lot(chunk, self._count(chunk), self.seed) for chunk in prompt.repairable)
