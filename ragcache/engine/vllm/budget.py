"""How much linking may take, of a step and of the workers' memory; and what of it each parked request gets."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import get_args

from ragcache.engine.vllm.jobs import CaptureJob, RequestJob
from ragcache.engine.vllm.loaders import LoaderName
from ragcache.engine.vllm.orders import Capture, Compute, Drop, Fetch, Load, Orders, Probe
from ragcache.errors import ConfigError, PromptError
from ragcache.link_phase import Phase
from ragcache.policy import LinkWhen, Work

MOST_CAPTURES = 4  # for the store: each is held in memory until it is written


@dataclass(frozen=True)
class LinkSettings:
    """How requests are linked, as whoever starts vLLM decides."""

    linker: str = "auto"  # of requests that name none
    # Of all prompts, computed per step while others run, whose next token waits; None: what takes as long as a pass.
    step_tokens: int | None = None
    least_tokens: int = 16  # of linked ones, even when other prefills take the whole budget, or they would starve us
    load_timeout_s: float = 5.0  # of reading, from when it begins; then what is not read is computed
    loader: LoaderName = "cake"  # layerwise: upper layers come while a prompt that is alone is computed over
    room_bytes: int = 1 << 30  # of each rank, for the K and V of prompts that load; others wait for their turn
    link_when: LinkWhen = "sooner"
    share_exact: bool = True  # KV that is a plain prefill's may enter vLLM's prefix cache for all; false: none does
    captures: bool = False  # whether requests of clients may store KV

    def __post_init__(self) -> None:
        for name in ("share_exact", "captures"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: choose true or false")
        for name, known in (("link_when", LinkWhen), ("loader", LoaderName)):
            if getattr(self, name) not in (choices := get_args(known)):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: choose {' or '.join(choices)}")

    def allow(self, exchange: str, exchanges: Container[str], ranks: int) -> None:
        """A capture that goes there. Raises PromptError or ConfigError."""
        if exchange and exchange not in exchanges:
            raise PromptError("it names an exchange that is not here: leave it out, and what is captured is stored")
        if not exchange and not self.captures:
            raise ConfigError("captures are off: this server's owner sets `captures` in kv_connector_extra_config")
        if ranks > 1:
            raise ConfigError("tensor-parallel ranks hold some heads each: capture with one rank, or by torch")

    @property
    def always(self) -> bool:
        """Whatever is cached is linked."""
        return self.link_when == "always"

    @property
    def meets(self) -> bool:
        """The front is computed while the rest is loaded."""
        return self.loader == "cake"


class Rooms:
    """The workers' memory for prompts whose caches are loaded; the scheduler's side lends it, so that all ranks agree.
    Of one rank, at most `nbytes` together, or a single one that is larger.
    """

    def __init__(self, nbytes: int, token_bytes: int):
        self._nbytes, self._token_bytes = nbytes, token_bytes
        self._held: dict[str, int] = {}
        self._refused: str | None = None  # who was, and nobody was lent one since

    @property
    def nbytes(self) -> int:
        return sum(self._held.values())

    def lend(self, request: str, tokens: int) -> bool:
        """Whether there is room. Whoever is refused comes first next time, or many small ones would starve it."""
        needed = tokens * self._token_bytes
        if self._held and self.nbytes + needed > self._nbytes:
            self._refused = request
            return False
        self._held[request], self._refused = needed, None
        return True

    def short(self, living: Container[str]) -> bool:
        """Whether one of these was refused, and nobody was lent one since."""
        return self._refused in living

    def take_back(self, needed: Callable[[str], bool]) -> tuple[str, ...]:
        """From all requests that do not need theirs any more -> these."""
        done = tuple(request for request in self._held if not needed(request))
        for request in done:
            del self._held[request]
        return done


class Capturing:
    """What clients have captured for the store, from when it has room until it is written, whoever has gone away."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def admits(self, job: RequestJob | CaptureJob) -> bool:
        """Whether it may begin: others that wait for the disk would hold what linked prompts need."""
        if isinstance(job, CaptureJob) and job.stores and job.request not in self._names:
            if len(self._names) >= MOST_CAPTURES:
                return False
            self._names.add(job.request)
        return True

    def ended(self, request: str) -> None:
        self._names.discard(request)


@dataclass(frozen=True)
class Budget:
    """Of one step."""

    left: int  # tokens that this step's ordinary work leaves
    busy: bool  # ordinary requests run in it
    spans: int  # pseudo-requests that one forward takes
    prefill: int = 0  # tokens of prompts among the ordinary work
    work: Work = field(default_factory=Work)  # what the ordinary work computes


@dataclass
class Forward:
    """What one takes in all."""

    tokens: int
    spans: int
    ample: int = 0  # tokens for what was not cached, which vLLM would compute in steps as large as they come

    def without(self, slices: Iterable[Compute]) -> Forward:
        taken = list(slices)
        spans = sum(_runs(slice.rows.positions) for slice in taken)
        tokens = sum(slice.tokens for slice in taken)
        return Forward(self.tokens - tokens, self.spans - spans, self.ample - tokens)

    def take(self, slice: Compute) -> None:
        self.tokens -= slice.tokens
        self.ample -= slice.tokens
        self.spans -= _runs(slice.rows.positions)

    @property
    def none(self) -> bool:
        return self.tokens <= 0 or self.spans <= 0


@dataclass
class StepWork:
    """Of one step."""

    load: list[Load] = field(default_factory=list)
    drop: list[Drop] = field(default_factory=list)
    probe: list[Probe] = field(default_factory=list)
    compute: list[Compute] = field(default_factory=list)
    capture: list[Capture] = field(default_factory=list)
    fetch: tuple[Fetch, ...] = ()
    forgo: tuple[str, ...] = ()

    def orders(
        self,
        release: tuple[str, ...],
        linked: tuple[str, ...],
        gone: tuple[str, ...],
        failed: tuple[str, ...],
        *,
        idle: bool,
    ) -> Orders:
        loads = (self.fetch, self.forgo, tuple(self.load), tuple(self.drop))
        work = (tuple(self.probe), tuple(self.compute), tuple(self.capture))
        return Orders(release, *loads, *work, linked, (*linked, *gone, *failed), failed, idle)


def _runs(positions: Sequence[int]) -> int:
    return 1 + sum(after != before + 1 for before, after in pairwise(positions))


def order(
    job: RequestJob | CaptureJob, work: StepWork, left: Forward, later: Forward, *, busy: bool, others: bool
) -> Compute | None:
    """Puts it into the step's work -> the rest of its rows, if they wait for the step in which vLLM goes on with it.
    `later`: what that step takes. It is `busy` with ordinary requests; to `others` it is left by what can wait.
    """
    if isinstance(job, CaptureJob):
        if job.phase is Phase.COMPUTE and not job.holds_on(others):
            work.capture.append(job.capture(left.tokens))
            left.tokens -= work.capture[-1].tokens
    elif job.phase is Phase.LOADING:
        if left.ample <= 0:
            return None
        # As what was not cached: vLLM would compute it in steps as large as they come, and this is a piece at most.
        work.drop += [] if (drop := job.drop(left.ample)) is None else [drop]
        if (slice := job.ahead(left.ample, left.spans)) is not None:
            work.compute.append(slice)
            left.take(slice)
    elif job.phase is Phase.PROBE:
        left.tokens -= job.probe_cost  # a probe is not cut: its rows are few
        work.probe.append(job.probe())
    elif job.phase is Phase.COMPUTE:
        beside = job.question if busy else 0
        now, then = (left.ample, later.ample) if job.ample else (left.tokens, later.tokens)
        if (tail := job.tail(then - beside, later.spans)) is not None:
            later.take(tail)
            return tail
        work.compute.append(job.compute(now, left.spans))
        left.take(work.compute[-1])
    return None


def any_linked(jobs: Iterable[RequestJob | CaptureJob]) -> bool:
    return any(isinstance(job, RequestJob) for job in jobs)


def any_loading(jobs: Iterable[RequestJob | CaptureJob]) -> bool:
    """Whether somebody reads in order to go on, or would with room to do so. Captures in line for the disk do not."""
    return any(job.phase is Phase.LOADING or (isinstance(job, RequestJob) and job.phase is Phase.NEW) for job in jobs)
