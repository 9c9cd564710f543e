"""What a parked request does next, within what the step leaves."""

from __future__ import annotations

from collections.abc import Iterable

from ragcache.engine.vllm.budget import Forward, StepWork
from ragcache.engine.vllm.capture_job import CaptureJob
from ragcache.engine.vllm.link_job import RequestJob
from ragcache.engine.vllm.orders import Compute
from ragcache.prompt.link_job import Phase


def any_linked(jobs: Iterable[RequestJob | CaptureJob]) -> bool:
    return any(isinstance(job, RequestJob) for job in jobs)


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
