"""Threads that wait for a disk in place of the engine's own, and how long a request waits for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, TypeVar

from ragcache.errors import StoreError

T = TypeVar("T")
Clock = Callable[[], float]


@dataclass(eq=False)
class Task(Generic[T]):
    asked: float
    future: Future[T] = field(default_factory=Future)
    begun: float | None = None  # when a thread took it up


class DiskThreads:
    """Used by one thread.

    A task's time counts from when a thread takes it up: that a step took long, or that there were many before it, is no
    sign of a bad disk. While none is taken up or finished at all, it counts from the last one that was.
    """

    def __init__(
        self,
        count: int,
        name: str,
        limit_s: float,
        clock: Clock = perf_counter,
        initializer: Callable[[], None] | None = None,
    ):
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name, initializer=initializer)
        self._count, self._limit_s, self._clock = count, limit_s, clock
        self._moved = clock()
        self._given_up: set[Task[Any]] = set()  # and a thread is still at them

    def submit(self, call: Callable[[], T]) -> Task[T]:
        """Where no thread will come to it, its future holds a StoreError at once."""
        task: Task[T] = Task(self._clock())
        self._given_up = {one for one in self._given_up if not one.future.done()}
        # Given up is not late: its client may have gone away a moment after it began.
        if sum(map(self.late, self._given_up)) >= self._count:
            task.future.set_exception(StoreError(f"it has not answered for {self._limit_s:g} s: look at its disk"))
            return task
        try:
            task.future = self._pool.submit(self._run, task, call)
        except RuntimeError:  # Python ends its pools before it ends the engine: nobody waits for this any more
            task.future.set_exception(StoreError("the program ends"))
        return task

    def _run(self, task: Task[T], call: Callable[[], T]) -> T:
        task.begun = self._moved = self._clock()
        try:
            return call()
        finally:
            self._moved = self._clock()

    def late(self, task: Task[T]) -> bool:
        since = max(task.asked, self._moved) if task.begun is None else task.begun
        return not task.future.done() and self._clock() - since > self._limit_s

    def give_up(self, task: Task[T]) -> None:
        """Nobody waits for it any more."""
        if not task.future.cancel():
            self._given_up.add(task)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
