"""From what a request asks to what is done for it: the plan, made on a thread that may wait for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass

from ragcache.address import system_address
from ragcache.engine.vllm.asking import LinkAsk
from ragcache.engine.vllm.disk_threads import DiskThreads, Task
from ragcache.engine.vllm.job import Linkage
from ragcache.errors import StoreError
from ragcache.planning import Plan, plan_prompt
from ragcache.report import COMPUTED, ChunkReport, Report
from ragcache.store.base import KVStore

WAIT_S = 0.005  # how long a request waits at once for its plan, which takes less unless the disk is asked
Exact = Callable[[int], None]  # told the position up to which a request's KV will be that of a plain prefill


def plan_linkage(asked: LinkAsk, fingerprint: str, store: KVStore, share_exact: bool) -> Linkage | Report:
    """A report where nothing of the prompt is cached. Raises PromptError for a prompt of another form."""
    plan = plan_prompt(asked.segments, fingerprint, store, lookup=not asked.linker.recompute_all)
    if not any(chunk.candidates for chunk in plan.chunks):
        return _plain_report(plan, asked.linker.name)
    system = system_address(fingerprint, plan.system.hash)
    return Linkage(plan, asked.linker, system, plan.exact_until if share_exact else 0)


@dataclass(frozen=True)
class _Pending:
    task: Task[Linkage | Report]
    exact: Exact


class Plans:
    """Those that are being made, by request; used by the scheduler's thread."""

    def __init__(self, threads: DiskThreads):
        self._threads = threads
        self._pending: dict[str, _Pending] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._pending

    def __bool__(self) -> bool:
        return bool(self._pending)

    def begin(self, request: str, make: Callable[[], Linkage | Report], exact: Exact) -> None:
        """Waits a moment, unless others wait for theirs already."""
        first = not self._pending
        self._pending[request] = _Pending(self._threads.submit(make), exact)
        if first:
            self.wait(WAIT_S)

    def wait(self, seconds: float) -> None:
        """Until one is made."""
        wait([pending.task.future for pending in self._pending.values()], seconds, FIRST_COMPLETED)

    def ready(self) -> Iterator[tuple[str, Callable[[], Linkage | Report], Exact]]:
        """Those that are made, or late -> what gives the plan or raises why there is none."""
        for request, pending in list(self._pending.items()):
            late = self._threads.late(pending.task)
            if late or pending.task.future.done():
                self.drop(request)
                yield request, _too_late if late else pending.task.future.result, pending.exact

    def drop(self, request: str) -> None:
        pending = self._pending.pop(request, None)
        if pending is not None and not pending.task.future.done():
            self._threads.give_up(pending.task)

    def close(self) -> None:
        self._threads.close()


def _too_late() -> Linkage | Report:
    raise StoreError("the cache folder was not searched in time: look at its disk")


def _plain_report(plan: Plan, linker: str) -> Report:
    """Of a prompt that nothing was reused for."""
    report = Report(linker, len(plan.ids), plan.question, len(plan.ids) - plan.question)
    report.other_computed = len(plan.system) + sum(len(text) for text in plan.texts)
    report.incidents += plan.incidents
    for chunk in plan.chunks:
        tokens = len(chunk.segment)
        report.chunks.append(ChunkReport(chunk.segment.hash, tokens, COMPUTED, computed=tokens))
    return report
