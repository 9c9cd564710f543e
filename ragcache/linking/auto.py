"""The default: a repair that answers hardly show to be one, for a tenth of the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ragcache.errors import ConfigError
from ragcache.linking.base import Choice, LinkedPrompt, Linker, PlacedChunk, Positions, share, top
from ragcache.types import FloatArray

# What a token counts whose whole context is still there: its KV may be off all the same, by what came in between or
# changed places. Small beside the attention that a token spends on a context chunk (some tenths).
FLOOR = 0.01
MOST = 0.1  # the share of tokens that is repaired by default
# Of the bundled model on prompts of some 1,000 tokens.
SCALE, POWER = 1.0, 0.75


@dataclass(frozen=True)
class Auto(Linker):
    """Of all cached tokens together, those that the question reads and that leaned on context which is gone.

    The budget is the prompt's, where Cache-Craft (eq 14) ranks within each chunk: a chunk that kept its context, that
    never leaned on it or that the question passes over leaves its share to one that matters. What the question reads
    is seen by a pass of it through all layers, as the answer will read it; before the middle it looks at places and
    at like tokens, whatever is asked.

    What is read of what is lost, summed over the tokens that stay as they are, tells about how far the answer will be
    off, by a factor and a power that differ with model, length and kind of text (docs/log.md), and can be measured on
    a collection. With `kl` a repair ends where that is small enough.
    """

    name: ClassVar[str] = "auto"
    ratio: float | None = None  # of the tokens of all cached chunks that are not exact: MOST, or with `kl` alone all
    kl: float | None = None  # the predicted divergence with which a repair ends before that
    depth: float = 1.0  # share of the layers that the probe runs through; 0 is no probe
    # Predicted is scale * left ** power; SCALE and POWER where nobody has measured them.
    scale: float | None = None
    power: float | None = None
    focus: int = 0

    def __post_init__(self) -> None:
        self.require_count("focus")
        if self.focus and 0 < self.depth < 1:
            raise ConfigError(f"linker {self.name!r}: focus={self.focus} follows whole passes: set depth to 0 or 1")
        if self.ratio is not None:
            self.require_ratio("ratio")
        if self.kl is not None:
            self.require_factor("kl")
            if not self.depth:
                raise ConfigError(f"linker {self.name!r}: kl={self.kl} is predicted by a probe: set a depth above 0")
        self.require_ratio("depth")
        for name in ("scale", "power"):
            if getattr(self, name) is not None:
                self.require_factor(name)

    @property
    def probes(self) -> bool:
        return self.depth > 0

    @property
    def most(self) -> float:
        """Of the tokens."""
        return (MOST if self.kl is None else 1.0) if self.ratio is None else self.ratio

    @property
    def choosing(self) -> str:
        """What is predicted changes nothing unless a divergence is to be reached."""
        return repr(replace(self, scale=None, power=None) if self.kl is None else self)

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
        left = self._divergence(worth[there].sum() - np.concatenate(([0.0], np.cumsum(worth[best]))))  # after so many
        enough = left <= self.kl if self.kl is not None else np.zeros(len(left), dtype=bool)
        needed = int(np.argmax(enough)) if enough.any() else count
        return Choice(np.sort(best[:needed]), float(left[needed]))

    def _divergence(self, left: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """In nats a token, of what is left."""
        scale = SCALE if self.scale is None else self.scale
        power = POWER if self.power is None else self.power
        return np.asarray(scale * np.maximum(left, 0.0) ** power, dtype=np.float64)


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
