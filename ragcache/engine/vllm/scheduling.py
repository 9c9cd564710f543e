"""The scheduler's side: which requests are linked, and what the workers do for them in each step.

It knows nothing of vLLM: the connector brings requests, blocks, budgets and answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ragcache.address import system_address
from ragcache.engine.vllm.asking import KEY, CaptureAsk, LinkAsk, read_ask
from ragcache.engine.vllm.budget import Budget, Forward
from ragcache.engine.vllm.capturing import CaptureJob
from ragcache.engine.vllm.job import Linkage, LinkJob, Phase
from ragcache.engine.vllm.orders import Answers, Capture, Compute, Load, Orders, Probe
from ragcache.engine.vllm.rooms import Rooms
from ragcache.engine.vllm.totals import Totals
from ragcache.errors import ConfigError, PromptError
from ragcache.planning import Plan, plan_prompt
from ragcache.report import COMPUTED, ChunkReport, Report
from ragcache.store.base import KVStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LinkSettings:
    linker: str = "auto"  # of requests that name none
    step_tokens: int = 32  # of all prompts, computed per step while others run: their next token waits
    least_tokens: int = 16  # of linked ones, even when other prefills take the whole budget, or they would starve us
    load_timeout_s: float = 5.0  # then what is not loaded is computed
    room_bytes: int = 1 << 30  # of each rank, for the K and V of prompts that load; others wait for their turn
    share_exact: bool = True  # KV that is a plain prefill's may enter vLLM's prefix cache for all; false: none does
    captures: bool = False  # whether requests of clients may store KV

    def __post_init__(self) -> None:
        for name in ("share_exact", "captures"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: choose true or false")


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
        token_bytes: int,
        clock: Callable[[], float] = perf_counter,
    ):
        """`token_bytes`: K and V of one token on one rank."""
        self.store = store
        self.desks: Container[str] = ()  # of an engine in this process: what it captures goes there
        self.totals = Totals()
        self._fingerprint, self._settings = fingerprint, settings
        self._ranks, self._layers = ranks, layers
        self._rooms = Rooms(settings.room_bytes, token_bytes)
        self._clock = clock
        self._wishes: dict[str, Linkage | CaptureAsk] = {}  # of all requests that live
        self._incidents: dict[str, str] = {}  # of requests that asked wrongly, and are served plainly
        self._jobs: dict[str, LinkJob | CaptureJob] = {}  # parked, in the order of arrival
        self._started: dict[str, float] = {}
        self._loading: dict[str, float] = {}  # since when; those before wait for a room
        self._finishing: set[str] = set()  # gone before their job was done
        self._positions: dict[str, int] = {}  # of requests whose job is done: where vLLM goes on
        self._tails: dict[str, Compute] = {}  # of these, what waits for the step in which vLLM does
        self._reports: dict[str, Report] = {}

    # -- a request's way --------------------------------------------------------------------------------------------

    def arrived(
        self, request: str, ids: Sequence[int], params: dict[str, Any] | None, foreign: str | None = None
    ) -> int | None:
        """None when there is nothing to link: it is an ordinary request then. Else, up to which position its KV will be
        that of a plain prefill. `foreign`: what else than the ids its KV depends on.
        """
        try:
            asked = read_ask(params, ids, self._settings.linker, self._fingerprint)
            if asked is not None and foreign:
                raise PromptError(f"{foreign}: KV is named by token ids alone")
            wish = self._plan(request, asked) if isinstance(asked, LinkAsk) else asked
            if isinstance(wish, CaptureAsk):
                self._allow(wish)
        except (PromptError, ConfigError) as error:
            # An engine has no way to refuse a request at this point; a plain prefill is right, and the answer says why.
            logger.warning("request %s is not linked: %s", request, error)
            self._incidents[request] = f"not linked: {error}"
            return None
        if wish is None:
            return None
        self._wishes[request] = wish
        return wish.exact if isinstance(wish, Linkage) else 0

    def _allow(self, asked: CaptureAsk) -> None:
        if asked.desk and asked.desk not in self.desks:
            raise PromptError("it names a desk that is not here: leave it out, and what is captured is stored")
        if not asked.desk and not self._settings.captures:
            raise ConfigError("captures are off: this server's owner sets `captures` in kv_connector_extra_config")
        if self._ranks > 1:
            raise ConfigError("tensor-parallel ranks hold some heads each: capture with one rank, or by torch")

    def _plan(self, request: str, asked: LinkAsk) -> Linkage | None:
        plan = plan_prompt(asked.segments, self._fingerprint, self.store, lookup=not asked.linker.recompute_all)
        if not any(chunk.candidates for chunk in plan.chunks):
            self._reports[request] = _plain_report(plan, asked.linker.name)
            return None
        system = system_address(self._fingerprint, plan.system.hash)
        return Linkage(plan, asked.linker, system, plan.exact_until if self._settings.share_exact else 0)

    def matched(self, request: str, computed: int) -> int:
        """Tokens beyond `computed` whose KV vLLM is to wait for. It is the whole prompt, so that there are blocks for
        the question too: a probe passes through it. See `resumes`.
        """
        wish = self._wishes.get(request)
        if wish is None or (isinstance(wish, Linkage) and computed >= wish.plan.question):
            return 0
        return max(0, _tokens(wish) - computed)

    def resumes(self, request: str) -> int | None:
        """Where vLLM goes on once we are finished: it computes the rest as any prompt's end. None for a request that is
        gone, or that it has nothing left to do for. Asked once.
        """
        return self._positions.pop(request, None)

    def allocated(self, request: str, blocks: Sequence[int], external: int) -> None:
        """vLLM has parked the request; its blocks are ours to fill until we say that it is finished."""
        wish = self._wishes[request]
        skip = _tokens(wish) - external
        if isinstance(wish, CaptureAsk):
            self._jobs[request] = CaptureJob(request, wish, blocks, skip)
        else:
            self._jobs[request] = LinkJob(request, wish, blocks, skip, ranks=self._ranks, layers=self._layers)
        self._started[request] = self._clock()

    def gone(self, request: str) -> dict[str, Any] | None:
        """The request finished or was aborted -> what its response carries."""
        if self._jobs.pop(request, None) is not None:
            self._finishing.add(request)  # vLLM keeps the blocks until it hears of them
        self._started.pop(request, None)
        self._loading.pop(request, None)
        self._positions.pop(request, None)
        self._tails.pop(request, None)
        self._wishes.pop(request, None)
        told = self._reports.pop(request, None)
        incident = self._incidents.pop(request, None)
        if incident is not None:
            self.totals.refused()
            return {KEY: {"incidents": [incident]}}
        if told is None:
            return None
        self.totals.add(told)
        return {KEY: told.to_dict()}

    def told(self, request: str) -> dict[str, Any]:
        """What the response of a request that still runs will carry, once it is known."""
        report = self._reports.get(request)
        return {} if report is None else {KEY: report.to_dict()}

    @property
    def waiting(self) -> bool:
        return bool(self._jobs or self._finishing)

    # -- steps ------------------------------------------------------------------------------------------------------

    def step(self, budget: Budget, scheduled: Iterable[str] = ()) -> Orders:
        """What the workers do in this step, oldest request first. `scheduled`: requests that vLLM computes in it."""
        release, load, drop = self._rooms.take_back(self._needs_room), tuple(self._loads()), self._late()
        probe: list[Probe] = []
        compute = [self._tails.pop(request) for request in scheduled if request in self._tails]
        capture: list[Capture] = []
        most = Forward(self._tokens(budget), budget.spans)
        left, later = most.without(compute), most.without(self._tails.values())
        for job in self._jobs.values():
            if left.none:
                break
            if isinstance(job, CaptureJob):
                if job.phase is Phase.COMPUTE:
                    left.tokens -= job.tokens  # in one pass, for the sake of the profile
                    capture.append(job.capture())
            elif job.phase is Phase.PROBE:
                left.tokens -= job.probe_cost  # a probe is not cut: its rows are few
                probe.append(job.probe())
            elif job.phase is Phase.COMPUTE:
                beside = job.question if budget.busy else 0
                if (tail := job.tail(later.tokens - beside, later.spans)) is not None:
                    self._tails[job.request] = tail
                    later = later.without([tail])
                else:
                    compute.append(job.compute(left.tokens, left.spans))
                    left = left.without(compute[-1:])
        work = (tuple(probe), tuple(compute), tuple(capture))
        return Orders(release, load, drop, *work, self._finished(), idle=not budget.busy)

    def _tokens(self, budget: Budget) -> int:
        left = min(budget.left, self._settings.step_tokens - budget.prefill) if budget.busy else budget.left
        return max(left, self._settings.least_tokens)

    def _needs_room(self, request: str) -> bool:
        job = self._jobs.get(request)
        return job is not None and job.needs_room

    def _loads(self) -> Iterator[Load]:
        """Of those that there is room for, in the order of arrival."""
        for request, job in self._jobs.items():
            if job.phase is Phase.NEW:
                if not self._rooms.lend(request, job.room):
                    return
                self._loading[request] = self._clock()
                yield job.load()

    def _late(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        deadline = self._clock() - self._settings.load_timeout_s
        return tuple(
            (request, job.give_up_loading())
            for request, job in self._jobs.items()
            if job.phase is Phase.LOADING and self._loading[request] < deadline
        )

    def _finished(self) -> tuple[str, ...]:
        done = [request for request, job in self._jobs.items() if job.phase is Phase.DONE]
        for request in done:
            job = self._jobs.pop(request)
            self._loading.pop(request, None)  # it may have had nothing to load
            self._report(job)
            if isinstance(job, LinkJob):
                self._positions[request] = job.resumes
        gone = tuple(self._finishing)
        self._finishing.clear()
        return (*done, *gone)

    def _report(self, job: LinkJob | CaptureJob) -> None:
        job.report.seconds["parked"] = self._clock() - self._started.pop(job.request)
        self._reports[job.request] = job.report

    def answered(self, answers: Answers) -> None:
        for loaded in answers.loaded:
            if loaded.request in self._jobs:
                self._jobs[loaded.request].loaded(loaded)
        for probed in answers.probed:
            probing = self._jobs.get(probed.request)
            if isinstance(probing, LinkJob):
                probing.probed(probed)
        for told in answers.told:
            if (report := self._report_of(told.request)) is not None:
                report.incidents.append(told.incident)
        for timed in answers.timed:
            if (report := self._report_of(timed.request)) is not None:  # the seconds of all ranks together
                report.seconds[timed.stage] = report.seconds.get(timed.stage, 0.0) + timed.seconds

    def _report_of(self, request: str) -> Report | None:
        job = self._jobs.get(request)
        return self._reports.get(request) if job is None else job.report

    def check_integrity(self) -> None:
        """Assert that nothing outlives its request (for tests)."""
        assert set(self._jobs) <= set(self._wishes), (self._jobs, self._wishes)
        assert set(self._positions) <= set(self._wishes), (self._positions, self._wishes)
        assert set(self._tails) <= set(self._wishes), (self._tails, self._wishes)
        assert set(self._started) == set(self._jobs), (self._started, self._jobs)
        assert not set(self._finishing) & set(self._wishes)
        assert set(self._loading) <= set(self._jobs), (self._loading, self._jobs)


def _tokens(wish: Linkage | CaptureAsk) -> int:
    return len(wish.plan.ids) if isinstance(wish, Linkage) else sum(len(segment) for segment in wish.segments)


def _plain_report(plan: Plan, linker: str) -> Report:
    """Of a prompt that nothing was reused for."""
    report = Report(linker, len(plan.ids), plan.question, len(plan.ids) - plan.question)
    report.other_computed = len(plan.system) + sum(len(text) for text in plan.texts)
    report.incidents += plan.incidents
    for chunk in plan.chunks:
        tokens = len(chunk.segment)
        report.chunks.append(ChunkReport(chunk.segment.hash, tokens, COMPUTED, computed=tokens))
    return report
