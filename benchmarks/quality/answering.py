"""One prompt answered twice: by full recompute, and over linked caches that are led along the full answer.

Each engine has its own way to do it; what is measured is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from app.models.loading import LoadedModel, TorchModel, load_torch_model
from app.settings import Settings
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


def open_answering(parts: LoadedModel, context: str, max_tokens: int) -> AnsweringEngine:
    """Over an empty cache. `context`: what its chunks are computed behind; `max_tokens`: of the longest answer."""
    if isinstance(parts, TorchModel):
        from benchmarks.quality.torch import TorchAnswering

        return TorchAnswering(parts, context, max_tokens)
    from benchmarks.quality.vllm import VllmAnswering

    return VllmAnswering(parts, context, max_tokens)


@contextmanager
def open_parts(settings: Settings) -> Iterator[LoadedModel]:
    """The engine of the settings, able to be led along an answer."""
    if settings.engine != "vllm":
        yield load_torch_model(settings)
        return
    from benchmarks.quality.forcing import engine_options
    from benchmarks.vllm_model import open_vllm

    with open_vllm(settings, **engine_options()) as parts:
        yield parts
