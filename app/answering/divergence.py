"""How far the answer over caches is from that of a full recompute: a prompt is computed both ways. On the torch engine
the linked answer is led along the other one; elsewhere it goes its own way, and where it leaves the other one it is
asked for again behind that one's tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from math import exp, inf, log, nan
from typing import Protocol

import torch

from app.answering.quality import NotMeasured
from ragcache.cache import ChunkCache, nobody_waits
from ragcache.engine import Engine, PromptRequest, TokenStream
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.keeping import Pause
from ragcache.linking.base import Linker
from ragcache.linking.baselines import Full
from ragcache.planning import plan_prompt
from ragcache.report import PREFIX
from ragcache.sampling import MOST_LOGPROBS, Sampling, TokenLogprobs
from ragcache.store.base import KVStore
from ragcache.types import Segment, Text

LEADS = 6  # times that an answer is led on; behind that it is known by what was told so far
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
        if not linkers or not _is_cached(segments, self.forcing.engine, self.forcing.source.store):
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
        if not linkers or not _is_cached(segments, self.cache.engine, self.cache.store):
            return []
        expected = _told(self._answer(segments, Full(), self.steps))
        return [self._divergence(segments, linker, expected) for linker in linkers] if expected else []

    def _divergence(self, segments: Sequence[Segment], linker: Linker, expected: Sequence[TokenLogprobs]) -> float:
        """Its answer goes its own way until it differs, and then again behind the other one's tokens up to there."""
        told = list[TokenLogprobs]()
        for _ in range(LEADS):
            said = tuple(one.token for one in expected[: len(told)])
            stream = self._answer([*segments, *([Text(said)] if said else [])], linker, len(expected) - len(told))
            _check_linked(stream)
            for one, other in zip(_told(stream), expected[len(told) :], strict=False):
                told.append(one)
                if one.token != other.token:
                    break
            if len(told) == len(expected) or not _told(stream):
                break
        return _mean([likely_divergence(one, other) for one, other in zip(expected, told, strict=False)])

    def _answer(self, segments: Sequence[Segment], linker: Linker, steps: int) -> TokenStream:
        """Whole, while nobody else has one. Raises NotMeasured."""
        engine = self.cache.engine
        asked = PromptRequest(segments, linker, steps, Sampling(logprobs=MOST_LOGPROBS), self.stop, apart=True)
        source = replace(self.cache.source, begin_answering=nobody_waits, rates=None, loader=None, prefixes=None)
        if self.pause is not None:
            self.pause()
        if engine.answers:
            raise NotMeasured("others read their answers")
        stream = engine.answer(asked, source, None)
        watched = nullcontext() if self.disturbed is None else self.disturbed(stream.cancel)
        with closing(stream), watched:
            for _ in stream:
                pass
        if stream.finish_reason == "cancelled":
            raise NotMeasured("somebody else waited for an answer")
        return stream


def _is_cached(segments: Sequence[Segment], engine: Engine, store: KVStore) -> bool:
    """Whether any chunk is."""
    return bool(plan_prompt(segments, engine.spec.fingerprint, store).cached)


def _check_linked(stream: TokenStream) -> None:
    """Raises NotMeasured where it is not known, or not so: an engine may not have got what was there."""
    if not any((one.reused or one.repaired) and one.tier != PREFIX for one in stream.report.chunks):
        raise NotMeasured("; ".join(stream.report.incidents) or "nothing of it was linked")


def _told(stream: TokenStream) -> list[TokenLogprobs]:
    """Of each token, that which stopped it too."""
    return [*stream.logprobs, *([] if stream.ending is None else [stream.ending])]


def _mean(found: Sequence[float]) -> float:
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
