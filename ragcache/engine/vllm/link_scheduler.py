"""The scheduler's side: which requests are linked, and what the workers do for them in each step.

It knows nothing of vLLM: the connector brings requests, blocks, budgets and answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any

from ragcache.engine.vllm.block_names import Leaders, PromptNames, private_name
from ragcache.engine.vllm.budget import Budget, Capturing, LinkSettings, Rooms, StepWork, any_linked, any_loading, order
from ragcache.engine.vllm.jobs import CaptureJob, NamedLinkage, RequestJob
from ragcache.engine.vllm.orders import Answers, Compute, Orders
from ragcache.engine.vllm.outcomes import FAILED, REFUSED, Outcomes
from ragcache.engine.vllm.own_time import OwnTime
from ragcache.engine.vllm.plans import PLANNERS, WAIT_S, Pace, Plans, Stepping, plan_linkage
from ragcache.engine.vllm.requests import CaptureRequest, LinkRequest, ReportRequest, read_request
from ragcache.engine.vllm.waiting import WaitingPrompts
from ragcache.errors import FAULTS, ConfigError, PromptError, reason_of
from ragcache.link_job import LinkJob
from ragcache.link_phase import Phase
from ragcache.loader.threads import DiskThreads
from ragcache.report import Report
from ragcache.store.base import KVStore

logger = logging.getLogger(__name__)


class LinkScheduler:
    """One per engine, called by its one thread."""

    def __init__(
        self,
        fingerprint: str,
        store: KVStore,
        settings: LinkSettings,
        *,
        ranks: int,
        layers: int,
        token_bytes: int,  # K and V, on one rank
        steps: Stepping,
        clock: Callable[[], float] = perf_counter,
    ):
        self.store, self._clock, self.outcomes, self.own = store, clock, Outcomes(), OwnTime()
        self.exchanges: Container[str] = ()  # of an engine in this process: what it captures goes there
        self._fingerprint, self._settings, self._ranks, self._layers = fingerprint, settings, ranks, layers
        self._rooms = Rooms(settings.room_bytes, token_bytes)
        self.pace = Pace(settings, steps, layers, clock=clock)
        self._leaders, self._waiting, self._capturing = Leaders(), WaitingPrompts(), Capturing()
        self._plans = Plans(DiskThreads(PLANNERS, "ragcache-plan", settings.load_timeout_s, clock))
        self._asked: dict[str, NamedLinkage | CaptureRequest] = {}  # of all requests that live
        self._jobs: dict[str, RequestJob | CaptureJob] = {}  # parked, in the order of arrival
        self._started: dict[str, float] = {}
        self._finishing: set[str] = set()  # gone before their job was done
        self._failing: set[str] = set()  # parked, and not linked after all
        self._ran: set[str] = set()  # have had their blocks: vLLM may take them back, and ask anew
        self._positions: dict[str, int] = {}  # of requests whose job is done: where vLLM goes on
        self._tails: dict[str, Compute] = {}  # of these, what waits for the step in which vLLM does

    def arrived(
        self,
        request: str,
        ids: Sequence[int],
        params: dict[str, Any] | None,
        names: PromptNames,
        foreign: str | None = None,
    ) -> None:
        """`names` hear of it where there is something to link, at once or in a later step; until then `matched` knows
        nothing. `foreign`: what else than the ids its KV depends on.
        """
        with self._linking(request):
            allow = partial(self._settings.allow, exchanges=self.exchanges, ranks=self._ranks)
            asked = read_request(params, ids, self._settings.linker, self._fingerprint, allow)
            if asked is not None and foreign:
                raise PromptError(f"{foreign}: KV is named by token ids alone")
            if isinstance(asked, CaptureRequest):
                self._adopt(request, asked, names)
            elif isinstance(asked, ReportRequest):
                self.outcomes.ask(request, asked.name)
            elif asked is not None:
                self._plan(request, asked, names)
        self._adopt_plans()

    def _plan(self, request: str, asked: LinkRequest, names: PromptNames) -> None:
        self.outcomes.keep(request, asked.name)
        known = (self._fingerprint, self.store, self._settings.share_exact, self.pace)
        # Where clients store KV, one could choose what others' chunks were computed behind.
        plan = partial(plan_linkage, asked, *known, others=not self._settings.captures)
        if asked.linker.recompute_all:  # looks nothing up
            self._adopt(request, plan(), names)
        else:
            self._plans.begin(request, plan, names)

    def _adopt_plans(self) -> None:
        for request, plan, names in self._plans.ready():
            with self._linking(request):
                self._adopt(request, plan(), names)

    def _adopt(self, request: str, asked: NamedLinkage | CaptureRequest | Report, names: PromptNames) -> None:
        if isinstance(asked, Report):
            self.outcomes.reports[request] = asked
            return
        self._leaders.know(request, names, asked.name if isinstance(asked, NamedLinkage) else private_name())
        self._asked[request] = asked
        if isinstance(asked, NamedLinkage):
            self._waiting.joined(request, asked, names)

    @contextmanager
    def _linking(self, request: str) -> Iterator[None]:
        """An engine has no way to refuse a request here, and serves others besides: a plain prefill is right, and the
        answer says why it was one.
        """
        try:
            yield
        except (PromptError, ConfigError) as error:
            logger.warning("request %s is not linked: %s", request, error)
            self._unlink(request, REFUSED, str(error))
        except FAULTS as error:
            logger.warning("request %s is not linked", request, exc_info=True)
            self._unlink(request, FAILED, reason_of(error))

    def _unlink(self, request: str, kind: str, reason: str) -> None:
        for ended in (self._leaders.gone, self._waiting.gone, self._capturing.ended):
            ended(request)
        asked = self._asked.pop(request, None)
        told = report.incidents if (report := self._report_of(request)) is not None else []
        done = "not captured" if isinstance(asked, CaptureRequest) else "not linked"
        self.outcomes.refuse(request, kind, [*told, f"{done}: {reason}"])
        for known in (self._tails, self._positions, self._jobs):
            known.pop(request, None)
        if self._started.pop(request, None) is not None:  # it is parked
            self._failing.add(request)

    def matched(self, request: str, computed: int) -> int | None:
        """Tokens beyond `computed` whose KV vLLM is to wait for. It is the whole prompt, so that there are blocks for
        the question too: a probe passes through it. See `resumes`. None while it is being planned, or while another
        request makes the same link, which vLLM's prefix cache then has.
        """
        if request in self._plans:
            return None
        with self._linking(request):
            return self._lacking(request, computed)
        return 0

    def _lacking(self, request: str, computed: int) -> int | None:
        asked = self._asked.get(request)
        if isinstance(asked, NamedLinkage):
            if not self._leaders.free(request, computed):
                return None
            asked = self._judged(request, asked, computed)
        if asked is None and request not in self._ran:
            self.pace.unlinked(self.outcomes.reports.get(request), computed)
        return 0 if asked is None else max(0, asked.tokens - computed)

    def _judged(self, request: str, asked: NamedLinkage, computed: int) -> NamedLinkage | None:
        """What is worth linking where vLLM has so many positions already."""
        judged = self.pace.judged(asked, computed) if computed < asked.plan.question else None
        if judged is None:
            del self._asked[request]
            self._waiting.gone(request)
            self._leaders.give_up(request, computed)
            self.outcomes.reports.setdefault(request, LinkJob(asked, skip=computed).unlinked())
        else:
            self._asked[request] = judged
        return judged

    def resumes(self, request: str) -> int | None:
        """Where vLLM goes on once we are finished: it computes the rest as any prompt's end. None for a request that is
        gone, or that it has nothing left to do for. Asked once.
        """
        return self._positions.pop(request, None)

    def runs(self, request: str) -> None:
        self._ran.add(request)

    def allocated(self, request: str, blocks: Sequence[int], external: int) -> None:
        """vLLM has parked the request; its blocks are ours to fill until we say that it is finished."""
        self._started[request] = self._clock()
        self._waiting.left(request)
        with self._linking(request):
            skip = (asked := self._asked[request]).tokens - external
            if isinstance(asked, CaptureRequest):
                self._jobs[request] = CaptureJob(request, asked, blocks, skip)
            else:
                self._leaders.lead(request, skip)
                self._jobs[request] = RequestJob(request, asked, blocks, skip, ranks=self._ranks, layers=self._layers)

    def gone(self, request: str) -> dict[str, Any] | None:
        """The request finished or was aborted -> what its response carries."""
        if (job := self._jobs.pop(request, None)) is not None:
            self._finishing.add(request)  # vLLM keeps the blocks until it hears of them
            if job.phase is not Phase.STORE:
                self._capturing.ended(request)
        for known in (self._started, self._positions, self._tails, self._asked):
            known.pop(request, None)
        for gone in (self._leaders.gone, self._waiting.gone, self._plans.drop, self._ran.discard):
            gone(request)
        return self.outcomes.gone(request)

    def close(self) -> None:
        self._plans.close()

    def step(self, budget: Budget, scheduled: Iterable[str] = ()) -> Orders:
        """What the workers do in this step, oldest request first. `scheduled`: requests that vLLM goes on with."""
        if self._plans and not (budget.busy or self._jobs):
            self.own.idle(partial(self._plans.wait, WAIT_S))  # instead of spinning
        self._adopt_plans()
        release = self._rooms.take_back(lambda request: request in self._jobs and self._jobs[request].needs_room)
        full, work = False, StepWork()
        for request in scheduled:
            work.compute += [self._tails.pop(request)] if request in self._tails else []
            self._leaders.done(request)
        most = self.pace.forward(budget)
        left, later = most.without(work.compute), self.pace.later(most, self._tails.values())
        others = not self._rooms.short(self._jobs) and (budget.busy or self._plans or any_linked(self._jobs.values()))
        for job in tuple(self._jobs.values()):
            with self._linking(job.request):
                if job.phase is Phase.NEW and not full and self._capturing.admits(job):  # in the order of arrival
                    full = not self._rooms.lend(job.request, job.room)
                    alone = len(self._jobs) == 1 and not budget.busy
                    terms = self.pace.loading(job, alone=alone) if isinstance(job, RequestJob) else ()
                    work.load += [] if full else [job.load(*terms)]
                if not left.none:
                    tail = order(job, work, left, later, busy=budget.busy, others=bool(others))
                    self._tails |= {} if tail is None else {job.request: tail}
        told = work.load, self._leaders.making, self._linking
        work.fetch, work.forgo = self._waiting.orders(*told, quiet=not any_loading(self._jobs.values()))
        done, failed, gone = self._finished(), tuple(self._failing), tuple(self._finishing)
        self._failing, self._finishing = set(), set()
        return self.pace.ordered(budget, work.orders(release, done, gone, failed, idle=not budget.busy))

    def _finished(self) -> tuple[str, ...]:
        done = [request for request, job in self._jobs.items() if job.phase is Phase.DONE]
        for request in done:
            job = self._jobs.pop(request)
            self._capturing.ended(request)
            job.report.seconds["parked"] = self._clock() - self._started.pop(request)
            self.outcomes.reports[request] = job.report
            if isinstance(job, RequestJob):
                self._positions[request] = job.resumes
                self.pace.linked(job, self._ranks)
                if request not in self._tails and not self.pace.steps.ahead:
                    self._leaders.done(request)
            elif job.stores:  # it is stored, whether vLLM takes its blocks back and asks anew or not
                self._asked.pop(request)
                self._leaders.gone(request)
        return tuple(done)

    def answered(self, answers: Answers) -> None:
        for looked in answers.looked:
            if isinstance(job := self._jobs.get(looked.request), RequestJob):
                job.looked(looked.when)
        for loaded in answers.loaded:
            if (job := self._jobs.get(loaded.request)) is not None:
                with self._linking(loaded.request):
                    job.loaded(piece := loaded.piece)
                    if isinstance(job, RequestJob) and job.planned_tier(piece):  # the workers alone have KV in RAM
                        piece.teach(self.pace.rates)
        for piece in answers.read:
            piece.teach(self.pace.rates)
        for probed in answers.probed:
            if isinstance(job := self._jobs.get(probed.request), RequestJob):
                with self._linking(probed.request):
                    job.probed(probed)
        for told in answers.incidents:
            if (report := self._report_of(told.request)) is not None:
                report.incidents.append(told.incident)
        for stored in answers.stored:
            self._capturing.ended(stored.request)
            if isinstance(job := self._jobs.get(stored.request), CaptureJob):
                job.stored()
        for timed in answers.timed:
            if (report := self._report_of(timed.request)) is not None:  # the seconds of all ranks together
                report.seconds[timed.stage] = report.seconds.get(timed.stage, 0.0) + timed.seconds
        self.pace.measured(answers.measured)
        for failed in answers.failed:
            self._capturing.ended(failed.request)
            self.failed(failed.request, failed.reason)

    def failed(self, request: str, reason: str) -> None:
        if request in self._asked:  # or it is gone, or that was said before
            self._unlink(request, FAILED, reason)

    def _report_of(self, request: str) -> Report | None:
        job = self._jobs.get(request)
        return self.outcomes.reports.get(request) if job is None else job.report

    def check_integrity(self) -> None:
        """Assert that nothing outlives its request (for tests)."""
        for known in (self._jobs, self._positions, self._tails, self._leaders.names, self._waiting.requests):
            assert set(known) <= set(self._asked), (known, self._asked)
        assert set(self._started) == set(self._jobs), (self._started, self._jobs)
        assert not (self._finishing | self._failing) & set(self._asked)
        assert not set(self.outcomes.refusals) & {*self._asked, *self.outcomes.reports}
