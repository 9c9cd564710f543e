"""Question-aware repair: the tokens that the question reads and whose old context is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragcache.linking.auto import FLOOR
from ragcache.linking.base import LinkedPrompt, Linker, PlacedChunk, Positions, heads_of, share, tokens_of, top, union
from ragcache.types import FloatArray


@dataclass(frozen=True)
class Query(Linker):
    """The head of every chunk, and the best of all other tokens of the prompt together."""

    name: ClassVar[str] = "query"
    first: int = 8  # tokens at the head of each chunk, repaired always; they come on top of `ratio`
    ratio: float = 0.08  # of all cached tokens that are not exact

    def __post_init__(self) -> None:
        self.require_count("first")
        self.require_ratio("ratio")

    @property
    def probes(self) -> bool:
        return self.ratio > 0

    def select(self, prompt: LinkedPrompt) -> Positions:
        chunks = prompt.repairable
        tokens, heads = tokens_of(chunks), heads_of(chunks, self.first)
        candidates = np.setdiff1d(tokens, heads, assume_unique=True)
        count = min(share(self.ratio, len(tokens)), len(candidates))
        if count == 0:
            return heads
        scores = score(prompt.question_attention("mean"), chunks)
        return union([heads, candidates[top(scores[candidates], count)]])


def score(question: FloatArray, chunks: Sequence[PlacedChunk]) -> FloatArray:
    """Worth of repairing each position: how much the question reads it × how much of its context is gone. [question]"""
    scores = np.zeros_like(question)
    for chunk in chunks:
        own = slice(chunk.start, chunk.end)
        scores[own] = question[own] * (chunk.lost_attention() + FLOOR)
    return scores
