"""A prompt linked and led along the answer of its full recompute, so that each step's distribution stands behind the
same tokens: how far the answer over caches is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from ragcache.engine import LinkSource, PromptRequest
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.generation import Prefilled, TorchGeneration, prefill
from ragcache.keeping import Pause
from ragcache.linking.base import Linker
from ragcache.linking.baselines import Full
from ragcache.planning import plan_prompt
from ragcache.report import FULL, Report
from ragcache.types import Segment


@dataclass(frozen=True)
class ForcedAnswers:
    """Answers of one engine over one source, greedy and of at most `max_tokens`."""

    engine: TorchEngine
    source: LinkSource
    max_tokens: int
    stop: frozenset[int] = frozenset()

    def prefilled(self, segments: Sequence[Segment], linker: Linker) -> Prefilled:
        return prefill(self.engine, PromptRequest(segments, linker, self.max_tokens), self.source)

    def full(self, segments: Sequence[Segment], pause: Pause | None = None) -> tuple[tuple[int, ...], torch.Tensor]:
        """The answer of the full recompute, and its logits: one step per token, and one for the end where it came to
        it. [steps, vocabulary] `pause` is called amid its prefill, if it can wait.
        """
        made = self.prefilled(segments, Full()) if pause is None else self._patiently(segments, pause)
        ids = self.free(made, made.logits)
        return ids, self.forced(made, ids, min(len(ids) + 1, self.max_tokens))

    def _patiently(self, segments: Sequence[Segment], pause: Pause) -> Prefilled:
        engine = self.engine
        plan = plan_prompt(segments, engine.spec.fingerprint, self.source.store, lookup=False)
        engine.check_tokens(plan.ids)
        last = len(plan.ids) - 1
        buffer = engine.buffer(len(plan.ids) + self.max_tokens, apart=True)
        engine.compute_patiently(plan.ids[:last], range(last), buffer, pause=pause)
        logits = engine.logits(engine.compute(plan.ids[last:], [last], buffer))[0]
        report = Report(FULL, last + 1, plan.question, last + 1 - plan.question)
        return Prefilled(plan, buffer, logits, report, last + 1)

    def free(self, prefilled: Prefilled, logits: torch.Tensor, start: int = 0) -> tuple[int, ...]:
        """Greedy tokens from the answer's token `start` on, the first of them by `logits`."""
        prompt = PromptRequest((), Full(), self.max_tokens - start, stop=self.stop)
        reached = replace(prefilled, logits=logits, length=len(prefilled.plan.ids) + start)
        return tuple(TorchGeneration(self.engine, prompt, reached, self.source, perf_counter()))

    def forced(self, prefilled: Prefilled, ids: Sequence[int], steps: int) -> torch.Tensor:
        """Logits of each step when the tokens before it are those of `ids`. [steps, vocabulary]"""
        engine, first = self.engine, prefilled.logits[None]
        if steps == 1:
            return first
        start = len(prefilled.plan.ids)
        fed = ids[: steps - 1]
        hidden = engine.compute(fed, range(start, start + len(fed)), prefilled.buffer, keep=len(fed))
        return torch.cat((first, engine.logits(hidden)))

    def divergence(self, prefilled: Prefilled, ids: Sequence[int], expected: torch.Tensor) -> float:
        """The mean over the steps of KL(full ‖ linked), in nats, where `full` gave these tokens and logits."""
        return float(kl_by_step(expected, self.forced(prefilled, ids, len(expected))).mean())


def kl_by_step(full: torch.Tensor, linked: torch.Tensor) -> torch.Tensor:
    """KL(full ‖ linked) in nats, of logits [steps, vocabulary] of the same forced answer. [steps] float64"""
    assert full.shape == linked.shape, (full.shape, linked.shape)
    # float64: at float32 the sum over a vocabulary ends below zero for distributions that are nearly the same.
    p, q = torch.log_softmax(full.double(), -1), torch.log_softmax(linked.double(), -1)
    return (p.exp() * (p - q)).sum(-1)
