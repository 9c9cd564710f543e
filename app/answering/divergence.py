"""How far the answer over caches is from that of a full recompute: a prompt is computed both ways, and the linked one
is led along the other's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.forcing import ForcedAnswers, kl_by_step
from ragcache.linking.base import Linker
from ragcache.types import Segment


def forced_answers(cache: ChunkCache, steps: int, stop: frozenset[int]) -> ForcedAnswers:
    """Whatever is cached is linked, also where computing it would be sooner: the loader too would compute its front.
    Nothing is kept.
    """
    assert isinstance(cache.engine, TorchEngine), cache.engine
    return ForcedAnswers(cache.engine, replace(cache.source, rates=None, loader=None, prefixes=None), steps, stop)


@dataclass(frozen=True)
class PromptDivergence:
    forcing: ForcedAnswers
    pause: Callable[[], None] = lambda: None  # between two computations: who waits for an answer goes first

    def of(self, segments: Sequence[Segment], linkers: Sequence[Linker]) -> list[float]:
        """The mean over the answer's tokens of KL(full ‖ linked), in nats, by each linker. Nothing where no chunk is
        cached.
        """
        ids, expected = self.forcing.full(segments)
        found = []
        for linker in linkers:
            self.pause()
            made = self.forcing.prefilled(segments, linker)
            if not any(chunk.reused or chunk.repaired for chunk in made.report.chunks):
                return []
            linked = self.forcing.forced(made, ids, len(expected))
            found.append(float(kl_by_step(expected, linked).mean()))
        return found
