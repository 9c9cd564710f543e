"""From what a request asks to what is done for it: the plan, made on a thread that may wait for the disk, by what steps
of this engine take, as measured while it serves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter

from ragcache.engine import Forecast
from ragcache.engine.vllm.block_names import PromptNames, link_name
from ragcache.engine.vllm.budget import Budget, Forward, LinkSettings
from ragcache.engine.vllm.jobs import NamedLinkage, RequestJob
from ragcache.engine.vllm.meeting import Approach
from ragcache.engine.vllm.orders import Compute, Measured, Orders, PromptRows
from ragcache.engine.vllm.requests import LinkRequest
from ragcache.errors import StoreError
from ragcache.link_job import LinkJob
from ragcache.linkage import Linkage
from ragcache.linking.base import Linker, Positions
from ragcache.linking.focus import probes
from ragcache.loader import SegmentPiece
from ragcache.loader.errands import Clock
from ragcache.loader.threads import DiskThreads, Task
from ragcache.planning import Plan, first_address, plan_prompt
from ragcache.policy import Rates, Terms, Work, first_pass, plain_seconds, worthwhile
from ragcache.report import Report
from ragcache.store.base import KVStore

LOAD_STEPS = 2  # in which a request's pieces are ordered and placed
PROBE_STEPS = 1  # more, where the linker asks what the question reads
STEP_S = 0.001  # that a step takes in which nobody computes
AMID = 1024  # where a row stands, in the mean
PLANNERS = 4  # threads: one waits for a bucket while another plans
HEARD_S = 1.0  # that the first requests wait at most for what was measured before them
WAIT_S = 0.005  # how long a request waits at once for its plan, which takes less unless the disk is asked


@dataclass(frozen=True)
class Stepping:
    """How an engine makes its steps."""

    pass_tokens: int = 2048  # most that one forward takes
    # Rows of ours never join a forward of vLLM's, what a worker's clock sees is their launching, and passes were
    # measured before any request, of which the first answers tell.
    gpu: bool = False
    # A step is scheduled before what became of the last one is known: nothing may fail once vLLM goes on with it.
    ahead: bool = False


class Pace:
    """What steps of one engine take, and what that means for a prompt that could be linked. Planning threads read it
    while the scheduler's thread writes.
    """

    def __init__(
        self,
        settings: LinkSettings,
        steps: Stepping,
        layers: int,
        *,
        clock: Clock = perf_counter,
    ):
        self.rates, self._settings, self._clock = Rates(), settings, clock
        self.steps, self._layers = steps, layers
        self._ordinary = Work()  # of the last step in which others did no more than decode
        self._heard = threading.Event()
        if not steps.gpu or settings.always:
            self._heard.set()

    def forward(self, budget: Budget) -> Forward:
        """What one takes of ours in this step."""
        least = self._settings.least_tokens
        tokens = min(budget.left, self._beside - budget.prefill) if budget.busy else budget.left
        return Forward(max(tokens, least), budget.spans, max(budget.left, least))

    def later(self, forward: Forward, tails: Iterable[Compute]) -> Forward:
        """What the step may take in which vLLM goes on with a request, beside what waits for it already."""
        return Forward(0, 0) if self.steps.ahead else forward.without(tails)

    @property
    def _beside(self) -> int:
        """Tokens of prompts in a step that others decode in: as many as take so long to compute as it takes to read the
        weights for them, so that others wait about twice as long. On a processor these are few, on a GPU many.
        """
        if self._settings.step_tokens is not None:
            return self._settings.step_tokens
        works = (Work(passes=1), Work(rows=1, attended=AMID))
        a_pass, row = (self.rates.seconds(work, fresh=False) for work in works)
        return self.steps.pass_tokens if a_pass >= self.steps.pass_tokens * row else int(a_pass / row)

    def ordered(self, budget: Budget, orders: Orders) -> Orders:
        """The orders of a step with what is computed in it, so that the worker can say how long that took."""
        ordinary = budget.work
        if not budget.prefill:
            self._ordinary = ordinary
        if orders.load or orders.capture:  # these take their time from reading and from hooks
            return orders
        return replace(orders, work=ordinary + self._own(ordinary, orders))

    def _own(self, ordinary: Work, orders: Orders) -> Work:
        forwards = bool(ordinary.rows) + bool(orders.compute)
        work = Work(passes=forwards if self.steps.gpu else min(1, forwards))
        for one in orders.compute:
            work += _rows(one.rows)
        for probe in orders.probe:
            work += (_rows(probe.rows) + Work(passes=1)) * (probe.layers.stop / self._layers)
        return work

    def measured(self, answers: Iterable[Measured]) -> None:
        for one in answers:
            self.rates.observe(one.work, one.seconds)
        self._heard.set()

    def hear(self, seconds: float) -> None:
        """Wait until that is known which was measured before any request."""
        self._heard.wait(seconds)

    def linked(self, job: LinkJob, ranks: int) -> None:
        """A request's KV is complete: what placing it took, and how much of it was computed again. The report has the
        seconds of all ranks together.
        """
        if not self.steps.gpu:
            self.rates.observe(Work(placed=job.placed_tokens), job.report.seconds.get("place", 0.0) / ranks)
        self.rates.observe_link(job.linkage.linker.choosing, *job.repair)

    def worthwhile(self, plan: Plan, linker: Linker, known: int = 0, exact: int = 0) -> Plan:
        """`known`: positions that the prefix cache holds. Behind any that is not `exact` nothing is computed ahead."""
        if self._settings.always:
            return plan
        steps = LOAD_STEPS + (PROBE_STEPS if probes(linker, len(plan.cached)) else 0)
        step, most = STEP_S, None
        if self._ordinary.rows:
            step += self.rates.seconds(self._ordinary + Work(passes=1))
            most = max(1, self._beside, self._settings.least_tokens)
        terms = Terms(
            known=known,
            pass_tokens=self.steps.pass_tokens,
            steps=steps,
            step_seconds=step,
            overlaps=self._settings.meets and known <= exact,
            focuses=True,
            slice_tokens=most,
            apart=self.steps.gpu,
        )
        return worthwhile(plan, linker, self.rates, terms)

    def forecast(self, plan: Plan, linker: Linker) -> Forecast:
        """Where vLLM has nothing of it, by a copy of what was learnt."""
        own = copy(self)
        own.rates = self.rates.copy()
        return Forecast(own.worthwhile(plan, linker), own.rates, own._plain(len(plan.ids)))

    def _plain(self, tokens: int, known: int = 0) -> float:
        return self.rates.first_token(plain_seconds(tokens, self.rates, Terms(known, self.steps.pass_tokens)))

    def unlinked(self, report: Report | None, known: int) -> None:
        """Of a prompt that is computed plainly, by now it is known what vLLM has of it already: when it is foretold."""
        if known and report is not None and report.planned_s is not None:
            report.planned_s = self._plain(report.prompt_tokens, known)

    def loading(self, job: RequestJob, *, alone: bool) -> tuple[Approach | None, float]:
        """Where its two ends meet, None where all is linked that is cached; and the seconds in which upper layers may
        come late, which others who are there would wait for.
        """
        if self._settings.meets:
            return self.meeting(job.pieces), 0.0
        plan, linker = job.linkage.plan, job.linkage.linker
        return None, self.rates.seconds(first_pass(plan, linker, self.rates)) if alone else 0.0

    def meeting(self, pieces: Sequence[SegmentPiece]) -> Approach | None:
        return None if self._settings.always else Approach(pieces, self.rates, self._seconds_ahead, self._clock)

    def _seconds_ahead(self, rows: Positions, tokens: int) -> float:
        """In steps in which others decode, as long as they do."""
        steps = -(-len(rows) // max(1, tokens))
        return self.rates.seconds(Work.at(rows) + (self._ordinary + Work(passes=1)) * steps) + steps * STEP_S

    def judged(self, linkage: NamedLinkage, known: int) -> NamedLinkage | None:
        """Again, now that it is known what vLLM has of the prompt already; None where a link would be no sooner."""
        if self._settings.always or linkage.always or linkage.known == known:
            return linkage
        plan = self.worthwhile(linkage.plan, linkage.linker, known, linkage.exact)
        return replace(linkage, plan=plan, known=known) if plan.cached else None


def _rows(rows: PromptRows) -> Work:
    return Work(rows=len(rows.ids), attended=sum(rows.positions) + len(rows.positions))


def plan_linkage(
    asked: LinkRequest, fingerprint: str, store: KVStore, share_exact: bool, pace: Pace, others: bool = True
) -> NamedLinkage | Report:
    """A report where nothing of the prompt is cached, or linking it would be no sooner. Raises PromptError for a prompt
    of another form. `others`: KV behind other System segments serves too.
    """
    found = plan_prompt(asked.segments, fingerprint, store, lookup=not asked.linker.recompute_all, others=others)
    if not (asked.always or asked.linker.recompute_all):
        pace.hear(HEARD_S)
    plan = found if asked.always else pace.worthwhile(found, asked.linker)
    system = first_address(plan, fingerprint)
    if not plan.cached:
        return LinkJob(Linkage(plan, asked.linker, system)).unlinked()
    exact = plan.exact_until if share_exact else 0
    name = link_name(plan, asked.linker, exact)
    return NamedLinkage(plan, asked.linker, system, exact, name=name, always=asked.always)


@dataclass(frozen=True)
class _Pending:
    task: Task[NamedLinkage | Report]
    names: PromptNames


class Plans:
    """Those that are being made, by request; used by the scheduler's thread."""

    def __init__(self, threads: DiskThreads):
        self._threads = threads
        self._pending: dict[str, _Pending] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._pending

    def __bool__(self) -> bool:
        return bool(self._pending)

    def begin(self, request: str, make: Callable[[], NamedLinkage | Report], names: PromptNames) -> None:
        """Waits a moment, unless others wait for theirs already."""
        first = not self._pending
        self._pending[request] = _Pending(self._threads.submit(make), names)
        if first:
            self.wait(WAIT_S)

    def wait(self, seconds: float) -> None:
        """Until one is made."""
        wait([pending.task.future for pending in self._pending.values()], seconds, FIRST_COMPLETED)

    def ready(self) -> Iterator[tuple[str, Callable[[], NamedLinkage | Report], PromptNames]]:
        """Those that are made, or late -> what gives the plan or raises why there is none."""
        for request, pending in list(self._pending.items()):
            late = self._threads.late(pending.task)
            if late or pending.task.future.done():
                self.drop(request)
                yield request, _too_late if late else pending.task.future.result, pending.names

    def drop(self, request: str) -> None:
        pending = self._pending.pop(request, None)
        if pending is not None and not pending.task.future.done():
            self._threads.give_up(pending.task)

    def close(self) -> None:
        self._threads.close()


def _too_late() -> NamedLinkage | Report:
    raise StoreError("the cache folder was not searched in time: look at its disk")
