"""The default: a repair that answers hardly show to be one, for a fourteenth of the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragcache.linking.base import LinkedPrompt, Linker, PlacedChunk, Positions, share, top
from ragcache.types import FloatArray


@dataclass(frozen=True)
class Auto(Linker):
    """Of all cached tokens together, those that leaned most on context that is gone and that the question reads.

    The budget is the prompt's, where Cache-Craft (eq 14) ranks within each chunk: a chunk that kept its context, or
    never leaned on it, leaves its share to one that lost much. What the question reads shows early: the probe
    stops well before the last layer. There it looks most at what stands right before it, whatever is asked; and to
    repair a token costs the more the later it stands, since it reads all before it. So places are weighed.
    """

    name: ClassVar[str] = "auto"
    ratio: float = 0.07  # of the tokens of all cached chunks that are not exact
    depth: float = 0.2  # share of the layers that the probe runs through; 0 is no probe
    half: int = 250  # at this position what the question reads counts half as much as at the start

    def __post_init__(self) -> None:
        self.require_ratio("ratio")
        self.require_ratio("depth")
        self.require_count("half", least=1)

    @property
    def probes(self) -> bool:
        return self.depth > 0

    def select(self, prompt: LinkedPrompt) -> Positions:
        chunks = prompt.repairable
        count = share(self.ratio, sum(chunk.length for chunk in chunks))
        scores = leaning(chunks, prompt.question)
        if self.depth and count:
            read = np.sqrt(prompt.question_attention("max", self.depth))
            read /= 1 + np.arange(prompt.question) / self.half
            np.multiply(
                scores, read, out=scores, where=np.isfinite(scores)
            )  # minus infinity stays, if nothing reads it
        return top(scores, count)


@dataclass(frozen=True)
class Fast(Auto):
    """On a fourth of its budget and without its probe: the soonest first token that repairs at all."""

    name: ClassVar[str] = "fast"
    ratio: float = 0.025
    depth: float = 0.0


def leaning(chunks: Sequence[PlacedChunk], question: int) -> FloatArray:
    """Per position, the attention that its token lost; minus infinity where there is nothing to repair. [question]"""
    scores = np.full(question, -np.inf, dtype=np.float32)
    for chunk in chunks:
        alone = len(chunk.profile.lengths) == 1
        scores[chunk.start : chunk.end] = _from_the_head(chunk.length) if alone else chunk.lost_attention()
    return scores


def _from_the_head(length: int) -> FloatArray:
    """A chunk captured alone leaned on nothing: what breaks is its first tokens, which had to stand for a context."""
    return np.asarray(1.0 / np.arange(1, length + 1), dtype=np.float32)
