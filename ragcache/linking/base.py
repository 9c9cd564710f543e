"""The contract of linkers: which tokens of the placed chunks to recompute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ragcache.scoring.reuse import Reuse
from ragcache.types import FloatArray, Profile

Positions = npt.NDArray[np.int64]  # ascending token positions of the prompt
Reduction = Literal["max", "mean"]  # over the tokens of the question
# Of a question, the last so many tokens are read: what is asked stands at the end, behind the chat so far. A bound is
# needed, since per token and position the attention is a sum over layers; a question of its own is seldom half as long.
READ_TOKENS = 256


@dataclass(frozen=True)
class PlacedChunk:
    """A cached chunk at its place in the prompt."""

    index: int  # which chunk of the prompt it is, from 0, counting those that are not cached too
    start: int  # its first position
    length: int
    profile: Profile
    reuse: Reuse  # how well the variant's old context fits the new one
    unchanged: bool  # same context in the same place: nothing but its codec's rounding is to be mended, never repaired
    # Per row of profile.inter: the `index` of that chunk in the new prompt, -1 where it does not stand before this one:
    # (-1, *reuse.places). Row 0, the System, is in every prompt, and nobody reads its entry.
    sources: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.start + self.length


def read_layers(depth: float, layers: int) -> range:
    """The layers whose attention a probe reads: the later half of those that it passes through. The first ones look at
    places and at like tokens, whatever is asked (docs/log.md).
    """
    stop = max(1, round(depth * layers))
    return range(stop // 2, stop)


class LinkedPrompt(ABC):
    """A prompt whose cached chunks are placed. What costs compute is a method, and the report charges it."""

    ids: tuple[int, ...]  # the whole prompt, question included
    question: int  # first position of the text after the last chunk
    chunks: list[PlacedChunk]  # the cached ones, in prompt order

    @abstractmethod
    def question_attention(self, reduction: Reduction, depth: float = 1.0) -> FloatArray:
        """Attention of the question to each position before it: per token the mean over heads and `read_layers`, then
        `reduction` over its last READ_TOKENS. It is reduced where it is computed, since all of it may be large.

        One pass of the question over the placed caches, through the first `depth` (a share) of the layers. [question]
        """

    @abstractmethod
    def deviation(self, layers: int) -> FloatArray:
        """KV deviation of each position before the question after recomputing `layers` layers of all. [question]

        CacheBlend's measure, at the last of these layers: squared difference of placed and fresh K and V.
        """


class Linker(ABC):
    """A strategy is its dataclass: the fields are its settings, with a default each.

    `select` is pure: the same prompt gives the same positions, and nothing is written. It asks the prompt for what
    costs compute at most once, and not at all when there is nothing to choose.
    """

    name: ClassVar[str]
    recompute_all: ClassVar[bool] = False  # `full`: caches are not even loaded

    @property
    def probes(self) -> bool:
        """Whether it asks what the question reads."""
        return False

    @abstractmethod
    def select(self, prompt: LinkedPrompt) -> Positions:
        """The positions to recompute, ascending, all inside cached chunks that are not `unchanged`."""
