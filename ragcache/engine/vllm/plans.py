"""From what a request asks to what is done for it: the plan, made on a thread that may wait for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass

from ragcache.engine.vllm.block_names import Names, link_name
from ragcache.engine.vllm.jobs import NamedLinkage
from ragcache.engine.vllm.pace import Pace
from ragcache.engine.vllm.requests import LinkRequest
from ragcache.errors import StoreError
from ragcache.link_job import Linkage, LinkJob
from ragcache.loader.threads import DiskThreads, Task
from ragcache.planning import first_address, plan_prompt
from ragcache.report import Report
from ragcache.store.base import KVStore

WAIT_S = 0.005  # how long a request waits at once for its plan, which takes less unless the disk is asked


def plan_linkage(
    asked: LinkRequest, fingerprint: str, store: KVStore, share_exact: bool, pace: Pace
) -> NamedLinkage | Report:
    """A report where nothing of the prompt is cached, or linking it would be no sooner. Raises PromptError for a prompt
    of another form.
    """
    found = plan_prompt(asked.segments, fingerprint, store, lookup=not asked.linker.recompute_all)
    plan = pace.worthwhile(found, asked.linker)
    system = first_address(plan, fingerprint)
    if not any(chunk.candidates for chunk in plan.chunks):
        return LinkJob(Linkage(plan, asked.linker, system)).unlinked()
    exact = plan.exact_until if share_exact else 0
    return NamedLinkage(plan, asked.linker, system, exact, name=link_name(plan, asked.linker, exact))


@dataclass(frozen=True)
class _Pending:
    task: Task[NamedLinkage | Report]
    names: Names


class Plans:
    """Those that are being made, by request; used by the scheduler's thread."""

    def __init__(self, threads: DiskThreads):
        self._threads = threads
        self._pending: dict[str, _Pending] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._pending

    def __bool__(self) -> bool:
        return bool(self._pending)

    def begin(self, request: str, make: Callable[[], NamedLinkage | Report], names: Names) -> None:
        """Waits a moment, unless others wait for theirs already."""
        first = not self._pending
        self._pending[request] = _Pending(self._threads.submit(make), names)
        if first:
            self.wait(WAIT_S)

    def wait(self, seconds: float) -> None:
        """Until one is made."""
        wait([pending.task.future for pending in self._pending.values()], seconds, FIRST_COMPLETED)

    def ready(self) -> Iterator[tuple[str, Callable[[], NamedLinkage | Report], Names]]:
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
