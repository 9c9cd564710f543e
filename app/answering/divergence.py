"""How far the answer over caches is from that of a full recompute: a prompt is computed both ways. On the torch engine
the linked answer is led along the other one; elsewhere each goes its own way, and they are compared as far as it is the
same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from math import exp, inf, log, nan
from typing import Protocol

import torch

from app.answering.quality import NotMeasured
from ragcache.cache import ChunkCache
from ragcache.engine import PromptRequest, TokenStream
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.keeping import Pause
from ragcache.linking.base import Linker
from ragcache.linking.baselines import Full
from ragcache.planning import plan_prompt
from ragcache.report import PREFIX
from ragcache.sampling import MOST_LOGPROBS, Sampling, TokenLogprobs
from ragcache.types import Segment

TRIES = 3  # of an answer that is given up whenever somebody begins to wait for his
LEAST = 1e-9  # probability of all that is not among the likeliest
Disturbed = Callable[[Callable[[], None]], AbstractContextManager[None]]  # as a keeper's


class DivergenceMeter(Protocol):
    def of(self, segments: Sequence[Segment], linkers: Sequence[Linker]) -> list[float]:
        """The mean over the answer's tokens of KL(full ‖ linked), in nats, by each linker. Nothing where no chunk is
        cached, or there is no linker.
        """


def divergence_of(
    cache: ChunkCache, steps: int, stop: frozenset[int], pause: Pause | None = None, disturbed: Disturbed | None = None
) -> DivergenceMeter:
    """As the cache's engine can tell it, of answers of so many tokens. `pause`: between and amid computations, who
    waits for an answer goes first; with `disturbed` also where the engine cannot hold on amid one.
    """
    if isinstance(cache.engine, TorchEngine):
        return PromptDivergence(forced_answers(cache, steps, stop), pause)
    return FreeDivergence(cache, steps, stop, pause, disturbed)


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


@dataclass(frozen=True)
class FreeDivergence:
    """By any engine, from what it tells of its likeliest tokens, however many these are."""

    cache: ChunkCache
    steps: int
    stop: frozenset[int]
    pause: Pause | None = None
    disturbed: Disturbed | None = None

    def of(self, segments: Sequence[Segment], linkers: Sequence[Linker]) -> list[float]:
        if not linkers:
            return []
        plan = plan_prompt(segments, self.cache.engine.spec.fingerprint, self.cache.store)
        if not any(chunk.candidates for chunk in plan.chunks):
            return []
        answers = []
        for linker in linkers:
            answers.append(self._answer(segments, linker))
            chunks = answers[-1].report.chunks
            if not any((one.reused or one.repaired) and one.tier != PREFIX for one in chunks):
                return []  # what was there cannot be read after all
        full = _told(self._answer(segments, Full()))
        return [_mean_divergence(full, _told(one)) for one in answers] if full else []

    def _answer(self, segments: Sequence[Segment], linker: Linker) -> TokenStream:
        """Whole. Raises NotMeasured."""
        engine = self.cache.engine
        asked = PromptRequest(segments, linker, self.steps, Sampling(logprobs=MOST_LOGPROBS), self.stop, apart=True)
        source = replace(self.cache.source, begin_answering=_nobody_waits, rates=None, loader=None, prefixes=None)
        for _ in range(TRIES):
            if self.pause is not None:
                self.pause()
            stream = engine.answer(asked, source, None)
            watched = nullcontext() if self.disturbed is None else self.disturbed(stream.cancel)
            with closing(stream), watched:
                for _ in stream:
                    pass
            if stream.finish_reason != "cancelled":
                return stream
        raise NotMeasured("somebody else waited for answers all the time")


def _nobody_waits() -> Callable[[], None]:
    return lambda: None


def _told(stream: TokenStream) -> list[TokenLogprobs]:
    """Of each token, that which stopped it too."""
    return [*stream.logprobs, *([] if stream.ending is None else [stream.ending])]


def _mean_divergence(full: Sequence[TokenLogprobs], linked: Sequence[TokenLogprobs]) -> float:
    """Over the tokens that both chose behind the same ones, the first that they differ in among them."""
    found = list[float]()
    for one, other in zip(full, linked, strict=False):
        found.append(likely_divergence(one, other))
        if one.token != other.token:
            break
    return sum(found) / len(found) if found else nan  # it says nothing


def likely_divergence(full: TokenLogprobs, linked: TokenLogprobs) -> float:
    """KL(full ‖ linked), in nats, of the likeliest tokens of the full recompute and of all others together: never more
    than that of all tokens, and little less. What the linked one does not tell is as likely there as the least of what
    it tells.
    """
    q = dict(linked.top)
    least = min(q.values(), default=-inf)
    divergence, rest, others = 0.0, 1.0, 1.0
    for token, logprob in full.top:
        share, told = exp(logprob), q.get(token, least)
        divergence += share * (logprob - told) if share else 0.0
        rest, others = rest - share, others - exp(told)
    rest, others = max(rest, LEAST), max(others, LEAST)
    return max(0.0, divergence + rest * log(rest / others)) if divergence == divergence else divergence
