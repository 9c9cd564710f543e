"""The contract of linkers: which tokens of the placed chunks to recompute. They choose all of some chunks, their heads
and tails, a share of them, the best.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ragcache.errors import ConfigError
from ragcache.scoring import ABSENT, Reuse
from ragcache.types import FloatArray, Profile

Positions = npt.NDArray[np.int64]  # ascending token positions of the prompt
Reduction = Literal["max", "mean"]  # over the tokens of the question
# Of a question, the last so many tokens are read: what is asked stands at the end, behind the chat so far. A bound is
# needed, since per token and position the attention is a sum over layers; a question of its own is seldom half as long.
READ_TOKENS = 256
# More than any prompt or model has use for, and small enough that nothing overflows where it is computed with.
MOST_COUNT = 2**31 - 1
MOST_FACTOR = 1e6


@dataclass(frozen=True)
class PlacedChunk:
    """A cached chunk at its place in the prompt."""

    index: int  # which chunk of the prompt it is, from 0, counting those that are not cached too
    start: int  # its first position
    length: int
    profile: Profile
    reuse: Reuse  # how well the variant's old context fits the new one
    unchanged: bool  # same context in the same place: nothing but its codec's rounding is to be mended, never repaired
    system_gone: bool = False  # computed behind another System segment than the prompt's

    @property
    def end(self) -> int:
        return self.start + self.length

    def lost_attention(self) -> FloatArray:
        """Per token, its attention to the context chunks, and to a System segment, that are not before it in the new
        prompt. [n]

        A variant without context chunks never saw what is before it now: its attention to the System stands in for
        that.
        """
        inter = self.profile.inter
        if len(inter) == 1:
            return np.asarray(inter[0])
        gone = np.asarray(self.reuse.places) == ABSENT
        lost = np.asarray(inter[1:][gone].sum(axis=0))
        return lost + inter[0] if self.system_gone else lost


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

    @property
    def repairable(self) -> list[PlacedChunk]:
        """The chunks a linker may choose from: those behind what they were computed behind need nothing."""
        return [chunk for chunk in self.chunks if not chunk.unchanged]

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


@dataclass(frozen=True)
class Choice:
    """What a linker has chosen."""

    positions: Positions
    predicted: float | None = None  # how far the answer will be off, in nats a token (KL); None where it does not say


class Linker(ABC):
    """A strategy is its dataclass: the fields are its settings, with a default each.

    `select` is pure: the same prompt gives the same positions, and nothing is written. It asks the prompt for what
    costs compute at most once, and not at all when there is nothing to choose.
    """

    name: ClassVar[str]
    recompute_all: ClassVar[bool] = False  # `full`: caches are not even loaded
    # Layers for which the same chunks have to lead by what the question reads, until the repair of all others ends
    # there (`focus.py`); inside vLLM, whose rows cannot end amid a pass, a probe tells which. 0: all are repaired.
    focus: int = 0

    @property
    def probes(self) -> bool:
        """Whether it asks what the question reads."""
        return False

    @property
    def choosing(self) -> str:
        """A name of all that its choice depends on."""
        return repr(self)

    @abstractmethod
    def select(self, prompt: LinkedPrompt) -> Positions:
        """The positions to recompute, ascending, all inside cached chunks that are not `unchanged`."""

    def choose(self, prompt: LinkedPrompt) -> Choice:
        """The same, with what is expected of it."""
        return Choice(self.select(prompt))

    def require_ratio(self, field: str) -> None:
        """A setting that is one. This and what follows raise ConfigError, with the linker, the value and its range."""
        if not 0.0 <= getattr(self, field) <= 1.0:  # false for nan too
            raise self._out_of_range(field, "from 0 to 1")

    def require_factor(self, field: str) -> None:
        value = getattr(self, field)
        if not (math.isfinite(value) and 0.0 <= value <= MOST_FACTOR):
            raise self._out_of_range(field, f"from 0 to {MOST_FACTOR:,.0f}")

    def require_count(self, field: str, least: int = 0) -> None:
        if not least <= getattr(self, field) <= MOST_COUNT:
            raise self._out_of_range(field, f"at least {least}, at most {MOST_COUNT:,}")

    def _out_of_range(self, field: str, choice: str) -> ConfigError:
        value = getattr(self, field)
        return ConfigError(f"linker {self.name!r}: {field}={value} is out of range: choose {choice}")


def tokens_of(chunks: Sequence[PlacedChunk]) -> Positions:
    """All positions of the chunks."""
    return union(np.arange(chunk.start, chunk.end) for chunk in chunks)


def heads_of(chunks: Sequence[PlacedChunk], count: int) -> Positions:
    """The first `count` positions of each chunk, or all of a shorter one."""
    return union(np.arange(chunk.start, min(chunk.start + count, chunk.end)) for chunk in chunks)


def tails_of(chunks: Sequence[PlacedChunk], count: int) -> Positions:
    """The last `count` positions of each chunk, or all of a shorter one."""
    return union(np.arange(max(chunk.end - count, chunk.start), chunk.end) for chunk in chunks)


def union(parts: Iterable[Positions]) -> Positions:
    """All positions of the parts, ascending, each once."""
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


def share(ratio: float, tokens: int) -> int:
    """⌈ratio · tokens⌉, at most all; a product that is whole but for float rounding counts as whole."""
    return min(tokens, math.ceil(round(ratio * tokens, 6)))


def top(scores: FloatArray | npt.NDArray[np.float64], count: int, ascending: bool = True) -> Positions:
    """Indices of the `count` highest scores, ascending or the highest score first; of equal ones the earlier wins."""
    best = np.argsort(-scores, kind="stable")[:count]
    return np.sort(best) if ascending else best
