"""One prompt answered twice: by full recompute, and over linked caches that are led along the full answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from app.prompt import PromptTemplate
from benchmarks.metrics import Divergence, divergence
from ragcache.cache import ChunkCache, Prefilled
from ragcache.generation import Generation
from ragcache.linking.base import Linker
from ragcache.linking.full import Full
from ragcache.sampling import Sampling
from ragcache.types import Segment


@dataclass(frozen=True)
class Reference:
    """The greedy answer of the full recompute."""

    ids: tuple[int, ...]
    text: str
    logits: torch.Tensor  # [steps, vocabulary]: one step per token, and one for the end where it came to it


@dataclass(frozen=True)
class Linked:
    divergence: Divergence
    text: str  # its own greedy answer
    part: float


@dataclass(frozen=True)
class Answering:
    template: PromptTemplate
    max_tokens: int

    def reference(self, cache: ChunkCache, segments: Sequence[Segment]) -> Reference:
        prefilled = cache.prefill(segments, linker=Full(), room=self.max_tokens)
        ids = self._free(cache, prefilled, prefilled.logits)
        steps = min(len(ids) + 1, self.max_tokens)
        return Reference(ids, self.template.decode(ids), _forced(cache, prefilled, ids, steps))

    def linked(self, cache: ChunkCache, segments: Sequence[Segment], linker: Linker, full: Reference) -> Linked:
        prefilled = cache.prefill(segments, linker=linker, room=self.max_tokens)
        forced = _forced(cache, prefilled, full.ids, len(full.logits))
        text = self.template.decode(self._own(cache, prefilled, forced, full))
        return Linked(divergence(full.logits, forced), text, prefilled.report.part)

    def _own(self, cache: ChunkCache, prefilled: Prefilled, forced: torch.Tensor, full: Reference) -> tuple[int, ...]:
        """Its own greedy answer: the full one's tokens as long as it chooses as the full recompute does, then its own.

        Both choices are taken from logits of the same shape: in bfloat16, a token that was decoded by itself may differ
        from the most probable one of a longer pass by rounding alone. Its own tokens are written over the forced ones
        in the buffer: no token attends to what is behind it.
        """
        same = (forced.argmax(-1) == full.logits.argmax(-1)).tolist()
        if all(same):
            return full.ids
        agreed = same.index(False)
        return (*full.ids[:agreed], *self._free(cache, prefilled, forced[agreed], agreed))

    def _free(self, cache: ChunkCache, prefilled: Prefilled, logits: torch.Tensor, start: int = 0) -> tuple[int, ...]:
        """Greedy tokens from the answer's token `start` on, the first of them by `logits`."""
        generation = Generation(
            cache.engine,
            prefilled.buffer,
            len(prefilled.plan.ids) + start,
            logits,
            prefilled.report,
            perf_counter(),
            self.max_tokens - start,
            Sampling(),
            cache.engine.spec.eos | self.template.stop,
            None,
        )
        return tuple(generation)


def _forced(cache: ChunkCache, prefilled: Prefilled, ids: Sequence[int], steps: int) -> torch.Tensor:
    """Logits of each step when the tokens before it are those of `ids`. [steps, vocabulary]"""
    first = prefilled.logits[None]
    if steps == 1:
        return first
    start = len(prefilled.plan.ids)
    fed = ids[: steps - 1]
    hidden = cache.engine.compute(fed, range(start, start + len(fed)), prefilled.buffer, keep=len(fed))
    return torch.cat((first, cache.engine.logits(hidden)))
