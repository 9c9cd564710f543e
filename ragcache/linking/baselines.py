"""What the others are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragcache.linking.base import LinkedPrompt, Linker, PlacedChunk, Positions, share, tokens_of, top, union
from ragcache.report import FULL


@dataclass(frozen=True)
class Naive(Linker):
    """Place the caches and repair nothing: the floor of the cost, and of the quality."""

    name: ClassVar[str] = "naive"

    def select(self, prompt: LinkedPrompt) -> Positions:
        return tokens_of([])


@dataclass(frozen=True)
class Full(Linker):
    """The null strategy: recompute everything. Fallback and oracle."""

    name: ClassVar[str] = FULL
    recompute_all: ClassVar[bool] = True

    def select(self, prompt: LinkedPrompt) -> Positions:
        return tokens_of(prompt.repairable)


@dataclass(frozen=True)
class Random(Linker):
    """As many tokens as the others, chosen by lot."""

    name: ClassVar[str] = "random"
    ratio: float = 0.15  # of each chunk's tokens
    seed: int = 0

    def __post_init__(self) -> None:
        self.require_ratio("ratio")
        self.require_count("seed")

    def select(self, prompt: LinkedPrompt) -> Positions:
        return union(by_lot(chunk, share(self.ratio, chunk.length), self.seed) for chunk in prompt.repairable)


def by_lot(chunk: PlacedChunk, count: int, seed: int) -> Positions:
    # The place is part of the seed, so that a chunk's lot does not depend on which others are cached.
    lot = np.random.default_rng([seed, chunk.start])
    return chunk.start + lot.choice(chunk.length, count, replace=False)


@dataclass(frozen=True)
class HeavyHitters(Linker):
    """H2O: the tokens of each chunk that its later tokens look at most."""

    name: ClassVar[str] = "h2o"
    ratio: float = 0.15  # of each chunk's tokens

    def __post_init__(self) -> None:
        self.require_ratio("ratio")

    def select(self, prompt: LinkedPrompt) -> Positions:
        return union(
            chunk.start + top(chunk.profile.received, share(self.ratio, chunk.length)) for chunk in prompt.repairable
        )
