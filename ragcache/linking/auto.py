"""The default: a repair that answers hardly show to be one, for a tenth of the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragcache.errors import ConfigError
from ragcache.linking.base import Choice, LinkedPrompt, Linker, PlacedChunk, Positions, share, top
from ragcache.types import FloatArray

# What a token counts whose whole context is still there: its KV may be off all the same, by what came in between or
# changed places. Small beside the attention that a token spends on a context chunk (some tenths).
FLOOR = 0.01
MOST = 0.1  # the share of tokens that is repaired by default


@dataclass(frozen=True)
class Auto(Linker):
    """Of all cached tokens together, those that the question reads and that leaned on context which is gone.

    The budget is the prompt's, where Cache-Craft (eq 14) ranks within each chunk: a chunk that kept its context, that
    never leaned on it or that the question passes over leaves its share to one that matters. What the question reads
    is seen by a pass of it through all layers, as the answer will read it; before the middle it looks at places and
    at like tokens, whatever is asked.

    What is read of what is lost, summed over the tokens that stay as they are, tells about how far the answer will be
    off, among prompts of one length (docs/log.md). With `kl` a repair ends where that is small enough.
    """

    name: ClassVar[str] = "auto"
    ratio: float | None = None  # of the tokens of all cached chunks that are not exact: MOST, or with `kl` alone all
    kl: float | None = None  # the predicted divergence with which a repair ends before that
    depth: float = 1.0  # share of the layers that the probe runs through; 0 is no probe
    # Divergence in nats for what the question reads of what is lost: the model's, on prompts of some 1,000 tokens.
    scale: float = 5.0

    def __post_init__(self) -> None:
        if self.ratio is not None:
            self.require_ratio("ratio")
        if self.kl is not None:
            self.require_factor("kl")
            if not self.depth:
                raise ConfigError(f"linker {self.name!r}: kl={self.kl} is predicted by a probe: set a depth above 0")
        self.require_ratio("depth")
        self.require_factor("scale")

    @property
    def probes(self) -> bool:
        return self.depth > 0

    @property
    def most(self) -> float:
        """Of the tokens."""
        return (MOST if self.kl is None else 1.0) if self.ratio is None else self.ratio

    def select(self, prompt: LinkedPrompt) -> Positions:
        return self.choose(prompt).positions

    def choose(self, prompt: LinkedPrompt) -> Choice:
        chunks = prompt.repairable
        count = share(self.most, sum(chunk.length for chunk in chunks))
        worth = leaning(chunks, prompt.question)
        if not self.depth or not count:
            return Choice(top(worth, count))
        read = prompt.question_attention("mean", self.depth).astype(np.float64)
        there = np.isfinite(worth)  # minus infinity stays, if nothing reads it
        worth = np.where(there, read * (np.where(there, worth, 0.0) + FLOOR), -np.inf)
        best = top(worth, count, ascending=False)
        if self.kl is None:
            return Choice(np.sort(best))
        left = self.scale * (worth[there].sum() - np.concatenate(([0.0], np.cumsum(worth[best]))))  # after so many
        needed = int(np.argmax(left <= self.kl)) if (left <= self.kl).any() else count
        return Choice(np.sort(best[:needed]), max(0.0, float(left[needed])))


@dataclass(frozen=True)
class Fast(Auto):
    """On a quarter of its budget and without its probe: the soonest first token that repairs at all."""

    name: ClassVar[str] = "fast"
    ratio: float | None = 0.025
    depth: float = 0.0


def leaning(chunks: Sequence[PlacedChunk], question: int) -> FloatArray:
    """Per position, the attention that its token lost; minus infinity where there is nothing to repair. [question]"""
    scores = np.full(question, -np.inf, dtype=np.float32)
    for chunk in chunks:
        scores[chunk.start : chunk.end] = _alone(chunk) if len(chunk.profile.lengths) == 1 else chunk.lost_attention()
    return scores


def _alone(chunk: PlacedChunk) -> FloatArray:
    """A chunk captured alone leaned on no other: what breaks is its first tokens, which had to stand for a context. It
    leaned on its System segment, and lost that where another stands there.
    """
    head = np.asarray(1.0 / np.arange(1, chunk.length + 1), dtype=np.float32)
    return head + chunk.lost_attention() if chunk.system_gone else head
