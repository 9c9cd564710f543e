"""Prompts that baselines answer in place of others: a beginning whose KV is there, and a rest that is computed in full.

What is placed is the KV of a plain prefill, so placing it changes the time alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from app.models.loading import LoadedModel, TorchModel
from benchmarks.quality.baselines import Baseline, Method, PrefixSet
from benchmarks.quality.prompts import Prompt
from ragcache.engine.torch.engine import TorchEngine
from ragcache.linking.base import Linker, share, top
from ragcache.types import Chunk, FloatArray, Segment, System, Text

ROWS = 128  # whose distributions over the vocabulary are held at a time


@dataclass(frozen=True)
class Substitute:
    placed: System  # its KV is there
    rest: Text  # is computed, the question included
    part: float  # share of the prompt's tokens before its question that are computed, as reports count it

    @classmethod
    def of(cls, prompt: Prompt, placed: Sequence[Segment], computed: Sequence[Segment]) -> Substitute:
        """`placed` and, between them and the question, `computed`."""
        question = prompt.segments[-1]
        before = sum(map(len, prompt.segments)) - len(question)
        return cls(System(_ids(placed)), Text(_ids([*computed, question])), sum(map(len, computed)) / before)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return (self.placed, self.rest)


def _ids(segments: Sequence[Segment]) -> tuple[int, ...]:
    return tuple(token for segment in segments for token in segment.ids)


class Substitution(ABC):
    """One baseline over the prompts of a run, which share their System segment."""

    @abstractmethod
    def meet(self, prompt: Prompt) -> None:
        """Each prompt of the run in its turn, also those that an interrupted run has measured."""

    @abstractmethod
    def of(self, prompt: Prompt) -> Substitute:
        """For one that it has met."""


class Reordering(Substitution):
    """SET-CACHE. It knows in which orders earlier prompts were computed; the KV of a beginning is made anew where it is
    needed, since it is the same whatever came behind it.
    """

    def __init__(self) -> None:
        self._orders: list[tuple[Chunk, ...]] = []
        self._met: dict[str, tuple[int, tuple[Chunk, ...]]] = {}  # how many chunks are placed, and all in the new order

    def meet(self, prompt: Prompt) -> None:
        beginning = max(
            (shared_beginning(prompt.chunks, earlier) for earlier in self._orders),
            # Of equally long ones, that which leaves the prompt in its order.
            key=lambda found: (sum(map(len, found)), found == prompt.chunks[: len(found)]),
            default=(),
        )
        rest = list(prompt.chunks)
        for chunk in beginning:
            rest.remove(chunk)
        order = (*beginning, *rest)
        self._orders.append(order)
        self._met[prompt.name] = len(beginning), order

    def of(self, prompt: Prompt) -> Substitute:
        count, order = self._met[prompt.name]
        return Substitute.of(prompt, [prompt.segments[0], *order[:count]], order[count:])


def shared_beginning(chunks: Sequence[Chunk], earlier: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The longest beginning of `earlier` that `chunks` can be ordered to begin with."""
    left = list(chunks)
    for count, chunk in enumerate(earlier):
        if chunk not in left:
            return tuple(earlier[:count])
        left.remove(chunk)
    return tuple(earlier)


class Shortening(Substitution):
    """Chunks are shortened once, as at an ingest: whatever is asked, a chunk keeps the same tokens."""

    def __init__(self, engine: TorchEngine, ratio: float):
        self._engine, self._ratio = engine, ratio
        self._short: dict[Chunk, Chunk] = {}

    def meet(self, prompt: Prompt) -> None:
        """Nothing depends on what came before."""

    def of(self, prompt: Prompt) -> Substitute:
        system = prompt.segments[0]
        return Substitute.of(prompt, [system], [self._shortened(system, chunk) for chunk in prompt.chunks])

    def _shortened(self, system: Segment, chunk: Chunk) -> Chunk:
        if chunk not in self._short:
            kept = top(self_information(self._engine, system, chunk), share(self._ratio, len(chunk)))
            self._short[chunk] = Chunk(tuple(chunk.ids[place] for place in kept.tolist()))
        return self._short[chunk]


def self_information(engine: TorchEngine, system: Segment, chunk: Chunk) -> FloatArray:
    """-log p of each token of the chunk, behind System and the tokens before it, in nats. [tokens]"""
    ids = (*system.ids, *chunk.ids)
    hidden = engine.compute(ids, range(len(ids)), engine.buffer(len(ids)), keep=len(chunk) + 1)  # [tokens + 1, hidden]
    told = torch.tensor(chunk.ids, device=hidden.device)
    turns = zip(hidden[:-1].split(ROWS), told.split(ROWS), strict=True)  # each token is foretold by the one before it
    found = torch.cat([cross_entropy(engine.logits(rows), right, reduction="none") for rows, right in turns])
    return np.asarray(found.cpu().numpy())


class Substitutions:
    """Of all baselines of a run, each by splitter."""

    def __init__(self, parts: LoadedModel, methods: Mapping[str, Method], splitters: Sequence[str]):
        baselines = {spec: method for spec, method in methods.items() if not isinstance(method, Linker)}
        self._found = {
            (splitter, spec): _begin(baseline, parts) for splitter in splitters for spec, baseline in baselines.items()
        }

    def meet(self, prompts: Mapping[str, Prompt]) -> None:
        """One question's, by splitter."""
        for (splitter, _), substitution in self._found.items():
            substitution.meet(prompts[splitter])

    def of(self, splitter: str, spec: str, prompt: Prompt) -> Substitute | None:
        """None for a linker, which answers the prompt itself."""
        substitution = self._found.get((splitter, spec))
        return None if substitution is None else substitution.of(prompt)


def _begin(baseline: Baseline, parts: LoadedModel) -> Substitution:
    assert isinstance(parts, TorchModel), parts
    return Reordering() if isinstance(baseline, PrefixSet) else Shortening(parts.engine, baseline.ratio)
