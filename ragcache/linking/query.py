"""Question-aware repair: the tokens that the question reads and whose old context is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragcache.linking.base import LinkedPrompt, Linker, PlacedChunk, Positions
from ragcache.linking.selection import heads_of, repairable, share, tokens_of, top, union
from ragcache.linking.spec import require_count, require_ratio
from ragcache.types import FloatArray

# What a token counts whose whole context is still there: its KV may be off all the same, by what came in between or
# changed places. Small beside the attention that a token spends on a context chunk (some tenths).
FLOOR = 0.01


@dataclass(frozen=True)
class Query(Linker):
    """The head of every chunk, and the best of all other tokens of the prompt together."""

    name: ClassVar[str] = "query"
    first: int = 8  # tokens at the head of each chunk, repaired always; they come on top of `ratio`
    ratio: float = 0.08  # of all cached tokens that are not exact

    def __post_init__(self) -> None:
        require_count(self.name, "first", self.first)
        require_ratio(self.name, "ratio", self.ratio)

    @property
    def probes(self) -> bool:
        return self.ratio > 0

    def select(self, prompt: LinkedPrompt) -> Positions:
        chunks = repairable(prompt)
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
        scores[own] = question[own] * (lost_attention(chunk) + FLOOR)
    return scores


def lost_attention(chunk: PlacedChunk) -> FloatArray:
    """Per token, its attention to the context chunks that are not before it in the new prompt. [n]

    A variant without context chunks never saw what is before it now: its attention to the System stands in for that.
    """
    inter = chunk.profile.inter
    if len(inter) == 1:
        return np.asarray(inter[0])
    gone = np.asarray(chunk.sources[1:]) < 0
    return np.asarray(inter[1:][gone].sum(axis=0))
