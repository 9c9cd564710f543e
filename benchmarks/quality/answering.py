"""One prompt answered twice: by full recompute, and over linked caches that are led along the full answer.

Each engine has its own way to do it; what is measured is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.quality.metrics import Divergence
from ragcache.kvgen import ChunkIngest
from ragcache.report import Report
from ragcache.types import Segment


@dataclass(frozen=True)
class FullAnswer:
    """The greedy answer of the full recompute."""

    ids: tuple[int, ...]
    text: str
    # [steps, vocabulary], or their log-softmax: one step per token, and one for the end where it came to it
    logits: torch.Tensor


@dataclass(frozen=True)
class Linked:
    divergence: Divergence
    text: str  # its own greedy answer
    part: float


class AnsweringEngine(ABC):
    """One engine over a cache in RAM. Prompts are answered one at a time, greedily.

    Linkers are named as on a command line. What the cache lacks would be computed and spoil the figures, so `cache` is
    filled with a prompt's chunks before it is asked.
    """

    cache: ChunkIngest

    @abstractmethod
    def reference(self, segments: Sequence[Segment]) -> FullAnswer:
        """By full recompute."""

    @abstractmethod
    def linked(self, segments: Sequence[Segment], linker: str, full: FullAnswer) -> Linked:
        """Led along the answer of `full`, so that each step's distribution stands behind the same tokens."""

    @abstractmethod
    def first_token(self, segments: Sequence[Segment], linker: str) -> Report:
        """Answer with one token, as an application asks for it."""
