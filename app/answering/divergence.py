"""How far the answer over caches is from that of a full recompute: a prompt is computed both ways, and the linked one
is led along the other's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.keeping import Pause
from ragcache.linking.base import Linker
from ragcache.planning import plan_prompt
from ragcache.types import Segment


def forced_answers(cache: ChunkCache, steps: int, stop: frozenset[int]) -> ForcedAnswers:
    """Whatever is cached is linked, also where computing it would be sooner: the loader too would compute its front.
    Nothing is kept but the System segment's KV, so it has to be everybody's.
    """
    assert isinstance(cache.engine, TorchEngine), cache.engine
    return ForcedAnswers(cache.engine, replace(cache.source, rates=None, loader=None, prefixes=None), steps, stop)


@dataclass(frozen=True)
class PromptDivergence:
    forcing: ForcedAnswers
    pause: Pause | None = None  # amid the full recompute, and between computations: who waits for an answer goes first

    def of(self, segments: Sequence[Segment], linkers: Sequence[Linker]) -> list[float]:
        """The mean over the answer's tokens of KL(full ‖ linked), in nats, by each linker. Nothing where no chunk is
        cached, or there is no linker.
        """
        if not linkers:
            return []
        plan = plan_prompt(segments, self.forcing.engine.spec.fingerprint, self.forcing.source.store)
        if not any(chunk.candidates for chunk in plan.chunks):
            return []
        ids, expected = self.forcing.full(segments, self.pause)
        found = []
        for linker in linkers:
            if self.pause is not None:
                self.pause()
            kl = self._linked(segments, linker, ids, expected)
            if kl is None:
                return []
            found.append(kl)
        return found

    def _linked(
        self, segments: Sequence[Segment], linker: Linker, ids: Sequence[int], expected: torch.Tensor
    ) -> float | None:
        """None where what was there cannot be read after all."""
        made = self.forcing.prefilled(segments, linker)
        if not any(chunk.reused or chunk.repaired for chunk in made.report.chunks):
            return None
        return self.forcing.divergence(made, ids, expected)
