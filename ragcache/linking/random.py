"""Baseline: as many tokens as the others, chosen by lot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragcache.linking.base import LinkedPrompt, Linker, PlacedChunk, Positions
from ragcache.linking.limits import require_count, require_ratio
from ragcache.linking.selection import repairable, share, union


@dataclass(frozen=True)
class Random(Linker):
    name: ClassVar[str] = "random"
    ratio: float = 0.15  # of each chunk's tokens
    seed: int = 0

    def __post_init__(self) -> None:
        require_ratio(self.name, "ratio", self.ratio)
        require_count(self.name, "seed", self.seed)

    def select(self, prompt: LinkedPrompt) -> Positions:
        return union(self._lot(chunk) for chunk in repairable(prompt))

    def _lot(self, chunk: PlacedChunk) -> Positions:
        # The place is part of the seed, so that a chunk's lot does not depend on which others are cached.
        lot = np.random.default_rng([self.seed, chunk.start])
        return chunk.start + lot.choice(chunk.length, share(self.ratio, chunk.length), replace=False)
