"""What steps of this engine take, measured while it serves, and what that means for a prompt that could be linked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ragcache.engine.vllm.budget import Budget
from ragcache.engine.vllm.jobs import NamedLinkage
from ragcache.engine.vllm.orders import Measured, Orders, PromptRows
from ragcache.link_job import LinkJob
from ragcache.linking.base import Linker
from ragcache.planning import Plan
from ragcache.policy import Rates, Terms, Work, worthwhile

LOAD_STEPS = 2  # in which a request's pieces are ordered and placed
PROBE_STEPS = 1  # more, where the linker asks what the question reads
STEP_S = 0.001  # that a step takes in which nobody computes


class Pace:
    """Of one engine; planning threads read it while the scheduler's thread writes."""

    def __init__(self, pass_tokens: int, layers: int, *, always: bool):
        """`always`: link whatever is cached, without a thought for the time."""
        self.rates = Rates()
        self._pass_tokens, self._layers, self._always = pass_tokens, layers, always
        self._ordinary = Work()  # of the last step in which others did no more than decode

    def ordered(self, budget: Budget, orders: Orders) -> Orders:
        """The orders of a step with what is computed in it, so that the worker can say how long that took."""
        ordinary = budget.work
        if not budget.prefill:
            self._ordinary = ordinary
        if orders.load or orders.capture:  # these take their time from reading and from hooks
            return orders
        return replace(orders, work=ordinary + self._own(ordinary, orders))

    def _own(self, ordinary: Work, orders: Orders) -> Work:
        work = Work(passes=1.0 if ordinary.rows or orders.compute else 0.0)
        for one in orders.compute:
            work += _rows(one.rows)
        for probe in orders.probe:
            work += (_rows(probe.rows) + Work(passes=1)) * (probe.layers.stop / self._layers)
        return work

    def measured(self, answers: Iterable[Measured]) -> None:
        for one in answers:
            self.rates.observe(one.work, one.seconds)

    def linked(self, job: LinkJob, ranks: int) -> None:
        """A request's KV is complete: what placing it took, and how much of it was computed again. The report has the
        seconds of all ranks together.
        """
        self.rates.observe(Work(placed=job.placed_tokens), job.report.seconds.get("place", 0.0) / ranks)
        self.rates.observe_link(repr(job.linkage.linker), job.repairable, job.report.repaired)

    def loaded(self, tier: str, nbytes: int, seconds: float) -> None:
        """`tier`: in which the plan saw it."""
        self.rates.observe_load(tier, nbytes, seconds)

    def worthwhile(self, plan: Plan, linker: Linker, known: int = 0) -> Plan:
        """`known`: positions that vLLM's prefix cache holds."""
        if self._always:
            return plan
        steps = LOAD_STEPS + (PROBE_STEPS if linker.probes else 0)
        step = STEP_S
        if self._ordinary.rows:
            step += self.rates.seconds(self._ordinary + Work(passes=1))
        return worthwhile(plan, linker, self.rates, Terms(known, self._pass_tokens, steps, step))

    def judged(self, linkage: NamedLinkage, known: int) -> NamedLinkage | None:
        """Again, now that it is known what vLLM has of the prompt already; None where a link would be no sooner."""
        if self._always or linkage.known == known:
            return linkage
        plan = self.worthwhile(linkage.plan, linkage.linker, known)
        return replace(linkage, plan=plan, known=known) if any(chunk.candidates for chunk in plan.chunks) else None


def _rows(rows: PromptRows) -> Work:
    return Work(rows=len(rows.ids), attended=sum(rows.positions) + len(rows.positions))
