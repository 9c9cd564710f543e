"""Threads that wait for a disk in place of the engine's own; what they read is waited for only so long."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import Any, Generic, TypeVar

from ragcache.errors import HandingOver, StoreError

T = TypeVar("T")
Clock = Callable[[], float]
Errand = tuple[Future[Any], Callable[[], object]]
READERS = 2  # threads that read files while the model computes
CLOSING_S = 5.0  # for those that compute with what they have read; one that waits for its disk is left behind


@dataclass(eq=False)
class Task(Generic[T]):
    asked: float
    future: Future[T] = field(default_factory=Future)
    begun: float | None = None  # when a thread took it up


class DiskThreads:
    """Threads may share it. Python waits for the threads of its own pools when the program ends, which one that is at a
    disk that does not answer would put off for ever.

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
        self._name, self._initializer = name, initializer or (lambda: None)
        self._count, self._limit_s, self._clock = count, limit_s, clock
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._errands: SimpleQueue[Errand | None] = SimpleQueue()  # None ends the threads
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        weakref.finalize(self, self._errands.put, None)
        self._moved = self._clock()
        self._given_up: set[Task[Any]] = set()  # and a thread is still at them

    def submit(self, call: Callable[[], T]) -> Task[T]:
        """Where no thread will come to it, its future holds a StoreError at once."""
        if self._process != os.getpid():  # a child of a fork has none of its parent's threads, and perhaps a held lock
            self._begin()
        task: Task[T] = Task(self._clock())
        with self._lock:
            self._given_up = given_up = {one for one in self._given_up if not one.future.done()}
        # Given up is not late: its client may have gone away a moment after it began.
        if sum(map(self.late, given_up)) >= self._count:
            task.future.set_exception(StoreError(f"it has not answered for {self._limit_s:g} s: look at its disk"))
            return task
        if self._closed:
            task.future.set_exception(StoreError("the engine ends"))
            return task
        self._errands.put((task.future, lambda: self._run(task, call)))
        with self._lock:
            if len(self._threads) < self._count:
                self._add_thread()
        return task

    def _add_thread(self) -> None:
        arguments = (self._errands, self._initializer)
        thread = threading.Thread(target=_serve, args=arguments, name=self._name, daemon=True)
        with suppress(RuntimeError, MemoryError):  # no thread is to be had now: the task waits for another, or is late
            thread.start()
            self._threads.append(thread)

    def _run(self, task: Task[T], call: Callable[[], T]) -> None:
        if not task.future.set_running_or_notify_cancel():
            return
        task.begun = self._moved = self._clock()
        try:
            with HandingOver(task.future):
                task.future.set_result(call())
        finally:
            self._moved = self._clock()

    def late(self, task: Task[T]) -> bool:
        since = max(task.asked, self._moved) if task.begun is None else task.begun
        return not task.future.done() and self._clock() - since > self._limit_s

    def give_up(self, task: Task[T]) -> None:
        """Nobody waits for it any more."""
        if not task.future.cancel():
            with self._lock:
                self._given_up = {*self._given_up, task}

    def close(self) -> None:
        """What no thread has taken up is cancelled."""
        self._closed = True
        with suppress(Empty):
            while (errand := self._errands.get_nowait()) is not None:
                errand[0].cancel()
        self._errands.put(None)
        last = monotonic() + CLOSING_S
        for thread in self._threads:
            thread.join(max(0.0, last - monotonic()))


def _serve(errands: SimpleQueue[Errand | None], initializer: Callable[[], None]) -> None:
    """On a thread. It knows nothing of the object that began it, which may be gone."""
    initializer()
    while (errand := errands.get()) is not None:
        errand[1]()
        del errand  # which knows it
    errands.put(None)  # for the next thread
