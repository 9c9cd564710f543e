"""Cache-Craft's repair without one of its parts. They tell what the part is worth, and serve nobody."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ragcache.linking.base import LinkedPrompt, PlacedChunk, Positions, union
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
        return union(self._lot(chunk) for chunk in prompt.repairable)

    def _lot(self, chunk: PlacedChunk) -> Positions:
        # The place is part of the seed, so that a chunk's lot does not depend on which others are cached.
        lot = np.random.default_rng([self.seed, chunk.start])
        return chunk.start + lot.choice(chunk.length, self._count(chunk), replace=False)
