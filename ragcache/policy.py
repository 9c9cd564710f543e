"""Which chunks of a prompt are sooner linked than computed: all of them, some, or none.

Nobody waits longer for a first token than without a cache, so whatever linking costs (loading, placing, a probe, the
steps of an engine that others decode in) is predicted and compared with a plain prefill first.

It is predicted from what was measured. A stretch of time is put down to what was done in it (`Work`): times that the
weights were read, rows that were computed, positions that these attended to, cached tokens that were placed. What each
of these takes is estimated from all stretches together, the newest counting most, so one estimate holds for prompts of
every length.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from ragcache.linking.base import Linker
from ragcache.planning import Plan, PlannedChunk
from ragcache.store.base import BUCKET, RAM

# Seconds for each part of Work, until something was measured: a small model on two cores. Only their proportions count
# then, and a few prompts overrule them.
PRIOR = np.array([1e-2, 3.5e-4, 1.8e-7, 8e-6])
PRIOR_WEIGHT = 0.005  # of it, against a measurement's 1
KEPT = 0.97  # of the weight of a measurement, with each one of its kind that follows
OTHERS_KEPT = 0.998  # with each one of another kind
ROUNDS = 30  # of coordinate descent: there are four unknowns
LOAD_PRIOR = 1e-9  # seconds a byte, from a tier that nothing was read from yet
LOAD_PRIORS = {BUCKET: 2e-8}  # over a network
SHARE_PRIOR = 0.08  # of the reused tokens that a linker computes again, until it has linked something
LEAST_PART = 0.5  # of what was predicted: a shorter measurement counts as so long, since one alone proves nothing
NAMES = 64  # tiers and linkers that are remembered: a linker's settings are a client's to choose
FADES = 0.9  # what was seen of a tier or linker, with each new sight of it
FORGETS = 0.98  # with each time that it was declined, or one bad sight of it would be the last

Floats = npt.NDArray[np.float64]
LinkWhen = Literal["sooner", "always"]  # where it is predicted to bring the first token sooner; wherever there is KV
# A link must be predicted to take at most so much of a prefill's time: predictions err by some percent.
MARGIN = 0.95
PROBE_DEPTH = 1.0  # of the layers, that a probe of the question passes through by default


@dataclass(frozen=True)
class Work:
    """What was, or is to be, done; sums of it are what is done one after the other."""

    passes: float = 0.0  # times that the weights are read; a probe reads some layers' alone
    rows: float = 0.0  # tokens through all layers
    attended: float = 0.0  # positions that these attend to, summed over the rows
    placed: float = 0.0  # cached tokens turned to their positions and written there

    @classmethod
    def of_rows(cls, start: int, end: int) -> Work:
        """Positions [start, end), whoever reads the weights for them."""
        count = max(0, end - start)
        return cls(rows=count, attended=count * (start + end + 1) / 2)

    def __add__(self, other: Work) -> Work:
        return Work(*(mine + theirs for mine, theirs in zip(self._parts, other._parts, strict=True)))

    def __mul__(self, factor: float) -> Work:
        return Work(*(factor * part for part in self._parts))

    @property
    def _parts(self) -> tuple[float, float, float, float]:
        return (self.passes, self.rows, self.attended, self.placed)

    def array(self) -> Floats:
        return np.array(self._parts)


class Rates:
    """Of one engine on one machine. Threads may share it; it holds a few numbers, however much is measured."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Least squares of the relative error: a short stretch tells as much as a long one.
        # Each kind of stretch fades by itself, or the many steps of an answer would efface what a prefill takes.
        self._squares: Floats = np.zeros((len(PRIOR), len(PRIOR), len(PRIOR)))
        self._products: Floats = np.zeros((len(PRIOR), len(PRIOR)))
        self._rates: Floats | None = PRIOR
        self._loads = Ratios(LOAD_PRIOR, 1e6, LOAD_PRIORS)  # seconds a byte, by tier
        self._shares = Ratios(SHARE_PRIOR, 1e3)  # by linker and its settings

    # -- computing --------------------------------------------------------------------------------------------------

    def observe(self, work: Work, seconds: float) -> None:
        parts = work.array()
        if seconds <= 0.0 or not parts.any():
            return
        relative = parts / max(seconds, LEAST_PART * self.seconds(work))
        kind = int(np.argmax(parts * PRIOR))  # what most of its time goes to
        with self._lock:
            kept = np.full(len(parts), OTHERS_KEPT)
            kept[kind] = KEPT
            self._squares *= kept[:, None, None]
            self._products *= kept[:, None]
            self._squares[kind] += np.outer(relative, relative)
            self._products[kind] += relative
            self._rates = None

    def seconds(self, work: Work) -> float:
        """That this would take."""
        with self._lock:
            if self._rates is None:
                self._rates = self._solved()
            return float(work.array() @ self._rates)

    def _solved(self) -> Floats:
        """The rates nearest to what was measured, none below zero."""
        squares = self._squares.sum(0) + np.diag(PRIOR_WEIGHT / PRIOR**2)
        products = self._products.sum(0) + PRIOR_WEIGHT / PRIOR
        rates = PRIOR.copy()
        for _ in range(ROUNDS):
            for place in range(len(rates)):
                rest = products[place] - squares[place] @ rates + squares[place, place] * rates[place]
                rates[place] = max(0.0, rest / squares[place, place])
        return rates

    # -- loading ----------------------------------------------------------------------------------------------------

    def observe_load(self, tier: str, nbytes: int, seconds: float) -> None:
        if nbytes > 0 and seconds >= 0.0:
            with self._lock:
                self._loads.observe(tier, seconds, nbytes)

    def load_seconds(self, tier: str, nbytes: int) -> float:
        with self._lock:
            return nbytes * self._loads.of(tier)

    # -- linking ----------------------------------------------------------------------------------------------------

    def observe_link(self, linker: str, reusable: int, computed: float) -> None:
        """`linker`: with its settings. `computed`: again, of so many reusable tokens."""
        if reusable > 0:
            with self._lock:
                self._shares.observe(linker, min(computed, reusable), reusable)

    def link_share(self, linker: str) -> float:
        """Of the reusable tokens, those that the linker will compute all the same; at most all."""
        with self._lock:
            return self._shares.of(linker)

    def declined(self, linker: str, tiers: Iterable[str]) -> None:
        """They were not used, so nothing will tell whether they are better by now."""
        with self._lock:
            self._shares.forget(linker)
            for tier in tiers:
                self._loads.forget(tier)


class Ratios:
    """By name, of two sums that both fade, each begun with a first guess."""

    def __init__(self, prior: float, weight: float, priors: Mapping[str, float] | None = None):
        """`weight`: the lower sum that the first guess stands for. `priors`: other ones, by name."""
        self._prior, self._weight, self._priors = prior, weight, priors or {}
        self._sums: dict[str, tuple[float, float]] = {}

    def _first(self, name: str) -> tuple[float, float]:
        return self._priors.get(name, self._prior) * self._weight, self._weight

    def of(self, name: str) -> float:
        upper, lower = self._sums.get(name, self._first(name))
        return upper / lower

    def observe(self, name: str, upper: float, lower: float) -> None:
        before = self._sums.pop(name, self._first(name))
        self._sums[name] = (FADES * before[0] + upper, FADES * before[1] + lower)
        while len(self._sums) > NAMES:
            del self._sums[next(iter(self._sums))]

    def forget(self, name: str) -> None:
        """Some of it, for the first guess."""
        if name in self._sums:
            pairs = zip(self._sums[name], self._first(name), strict=True)
            upper, lower = (FORGETS * seen + (1 - FORGETS) * first for seen, first in pairs)
            self._sums[name] = (upper, lower)


@dataclass(frozen=True)
class Terms:
    """Under which a prompt is computed."""

    known: int = 0  # leading positions whose KV is there already
    pass_tokens: int | None = None  # most rows of one pass; None: all at once
    steps: int = 0  # further steps of the engine that a link takes
    step_seconds: float = 0.0  # that one of them takes, since others decode in it
    overlaps: bool = False  # the front is computed while the back is loaded


def worthwhile(plan: Plan, linker: Linker, rates: Rates, terms: Terms | None = None) -> Plan:
    """The plan with the variants that make the first token sooner; those left out are `declined`."""
    terms = terms or Terms()
    if not any(chunk.candidates for chunk in plan.chunks):
        return plan
    if terms.overlaps:  # the loader leaves out what is sooner computed
        # Nothing is computed ahead behind what is linked at once, so there each is judged by itself.
        reach = next((chunk.index for chunk in plan.chunks if _is_near(chunk)), len(plan.chunks))
        behind = (_kept(chunk, linker, rates) for chunk in plan.chunks[reach:])
        linked = replace(plan, chunks=(*plan.chunks[:reach], *behind))
        link = _meeting_seconds(linked, linker, rates, terms, reach)
    else:
        linked = replace(plan, chunks=tuple(_kept(chunk, linker, rates) for chunk in plan.chunks))
        link = _link_seconds(linked, linker, rates, terms)
    if link > MARGIN * _plain_seconds(plan, rates, terms):
        linked = replace(plan, chunks=tuple(replace(chunk, candidates=()) for chunk in plan.chunks))
    before, after = _reusable(plan), _reusable(linked)
    if after == before:
        return plan
    rates.declined(linker.choosing, {chunk.candidates[0].info.tier for chunk in plan.chunks if chunk.candidates})
    return replace(linked, declined=before - after)


def _kept(chunk: PlannedChunk, linker: Linker, rates: Rates) -> PlannedChunk:
    """Without its variants, where bringing the best of them takes longer than computing it."""
    if not chunk.candidates:
        return chunk
    best = chunk.candidates[0]
    bring = _load_seconds(chunk, rates) + rates.seconds(Work(placed=len(chunk.segment)))
    again = 0.0 if best.unchanged else rates.link_share(linker.choosing)
    saved = rates.seconds(Work.of_rows(chunk.span.start, chunk.span.end) * (1 - again))
    return chunk if bring < saved else replace(chunk, candidates=())


def _plain_seconds(plan: Plan, rates: Rates, terms: Terms) -> float:
    rows = Work.of_rows(terms.known, len(plan.ids))
    return rates.seconds(rows + Work(passes=_passes(rows.rows, terms)))


def _is_near(chunk: PlannedChunk) -> bool:
    """Whether it is linked before anything is read, and is not what a prefill would hold."""
    return bool(chunk.candidates) and chunk.candidates[0].info.tier == RAM and not chunk.candidates[0].exact


def _meeting_seconds(plan: Plan, linker: Linker, rates: Rates, terms: Terms, reach: int) -> float:
    """With so many of the first `reach` chunks computed, while the others are loaded, that both are soon done."""
    loads = [_load_seconds(chunk, rates) for chunk in plan.chunks]
    computed, left, known = 0.0, sum(loads), terms.known
    both, met = left, known
    for chunk, load in zip(plan.chunks[:reach], loads, strict=False):
        rows = Work.of_rows(max(known, chunk.span.start), max(known, chunk.span.end))
        computed += rates.seconds(rows + Work(passes=1))
        left -= load
        if computed >= both:
            break
        if max(computed, left) < both:
            both, met = max(computed, left), max(known, chunk.span.end)
    rest = _link_seconds(plan, linker, rates, replace(terms, known=met)) - sum(loads)
    return max(0.0, rest) + both


def _load_seconds(chunk: PlannedChunk, rates: Rates) -> float:
    if not chunk.candidates:
        return 0.0
    best = chunk.candidates[0].info
    return rates.load_seconds(best.tier, best.nbytes)


def _link_seconds(plan: Plan, linker: Linker, rates: Rates, terms: Terms) -> float:
    known = terms.known
    question = Work.of_rows(max(known, plan.question), len(plan.ids))
    work, missing, load = question, 0.0, 0.0
    if linker.probes and any(chunk.candidates and not chunk.candidates[0].unchanged for chunk in plan.chunks):
        work += (question + Work(passes=1)) * PROBE_DEPTH
    covered = plan.head  # the System segment's own KV is as good as there
    for chunk in plan.chunks:
        start, end = max(chunk.span.start, known), max(chunk.span.end, known)
        rows = Work.of_rows(start, end)
        covered += len(chunk.segment)
        if not chunk.candidates:
            work, missing = work + rows, missing + rows.rows
            continue
        best = chunk.candidates[0]
        load += _load_seconds(chunk, rates)
        again = 0.0 if best.unchanged else rates.link_share(linker.choosing)
        work += rows * again + Work(placed=rows.rows)
    texts = max(0, plan.question - covered)
    work += Work.of_rows(plan.question - texts, plan.question)
    passes = 1 + _passes(missing + texts, terms)
    return rates.seconds(work + Work(passes=passes)) + load + terms.steps * terms.step_seconds


def _passes(rows: float, terms: Terms) -> float:
    """Times that the weights are read for so many rows of a prompt."""
    if rows <= 0:
        return 0.0
    return 1.0 if terms.pass_tokens is None else float(-(-rows // terms.pass_tokens))


def _reusable(plan: Plan) -> int:
    return sum(len(chunk.segment) for chunk in plan.chunks if chunk.candidates)
