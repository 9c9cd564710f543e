"""Threads that wait for a disk in place of the engine's own; what they read is waited for only so long."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Any, Generic, TypeVar

import torch

from ragcache.errors import HandingOver, StoreError
from ragcache.host import allowed
from ragcache.loader.errands import Clock, Errands
from ragcache.store.nearness import AT, Beyond

T = TypeVar("T")
# Threads that read files while the model computes: one waits for the disk while another is decoded. Each brings 1 to 3
# GB/s of what the system holds in memory, and what has many cores may have a GPU, which takes twenty.
READERS = max(2, min(8, len(allowed()) // 2))
FAR = 4  # at least, that wait for a network
SHARE = 1 / 4  # of that limit, which a task may take on a disk that so many share
CLOSING_S = 5.0  # for those that compute with what they have read; one that waits for its disk is left behind


def on_one_core() -> None:
    """What this thread computes, decoding, it computes by itself: helpers of its own would hold up the engine's. Unlike
    torch.set_num_threads it leaves alone what threads compute with that begin later.
    """
    torch.get_num_threads()  # torch sets its own number where a thread first asks for it
    with suppress(OSError, TypeError, AttributeError):  # built without OpenMP
        ctypes.CDLL(None).omp_set_num_threads(1)


@dataclass(eq=False)
class Task(Generic[T]):
    asked: float
    future: Future[T] = field(default_factory=Future)
    begun: float | None = None  # when a thread took it up
    far: bool = False  # it waits for a network


class DiskThreads:
    """Threads may share it, and who submits have their turns, one task each. Python waits for the threads of its own
    pools when the program ends, which one that is at a disk that does not answer would put off for ever.

    A task's time counts from when a thread takes it up: that a step took long, or that there were many before it, is no
    sign of a bad disk. While none is taken up or finished at all, it counts from the last one that was. Few are at work
    at once until it is seen that the disk is quick enough for more.

    What waits for a network does so on threads of its own, so that nothing of the disk waits behind it.
    """

    def __init__(
        self,
        count: int,
        name: str,
        limit_s: float,
        clock: Clock = perf_counter,
        initializer: Callable[[], None] = on_one_core,
        *,
        far: bool = False,
    ):
        """`far`: what it waits for is a network."""
        self._name, self._initializer, self._is_far = name, initializer, far
        self._count, self.limit_s, self._clock = count, limit_s, clock
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._errands = Errands(self._count, self.limit_s * SHARE, self._clock)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, self._errands.end)
        self._moved = self._clock()
        self._given_up: set[Task[Any]] = set()  # and a thread is still at them
        self._far: DiskThreads | None = None

    def submit(self, call: Callable[[], T], client: object = None, *, far: bool = False) -> Task[T]:
        """Where no thread will come to it, its future holds a StoreError at once. `client`: whose turn it takes.
        `far`: it may wait for a network.
        """
        if self._process != os.getpid():  # a child of a fork has none of its parent's threads, and perhaps a held lock
            self._leave_to_parent()
            self._begin()
        task: Task[T] = Task(self._clock(), far=far)
        (self._beyond() if far else self)._put(task, call, id(client))
        return task

    @property
    def idle(self) -> bool:
        """Nothing is read from the disk, or is to be, but what does not come and nobody waits for."""
        return self._errands.idle(sum(map(self.late, self._given_up)))

    def _leave_to_parent(self) -> None:
        """What ends with them takes a lock, which a thread of the parent's may have held."""
        self._end.detach()
        if self._far is not None:
            self._far._end.detach()

    def _put(self, task: Task[T], call: Callable[[], T], client: int) -> None:
        with self._lock:
            self._given_up = given_up = {one for one in self._given_up if not one.future.done()}
        # Given up is not late: its client may have gone away a moment after it began.
        if sum(map(self.late, given_up)) >= self._errands.width:
            where = "the bucket" if self._is_far else "its disk"
            task.future.set_exception(StoreError(f"it has not answered for {self.limit_s:g} s: look at {where}"))
            return
        if self._closed:
            task.future.set_exception(StoreError("the engine ends"))
            return
        self._errands.put((task.future, lambda: self._run(task, call, client)), client)
        with self._lock:
            if len(self._threads) < self._count:
                self._add_thread()

    def _beyond(self) -> DiskThreads:
        with self._lock:
            if self._far is None:
                count = max(FAR, self._count)
                named = (f"{self._name}-far", self.limit_s, self._clock, self._initializer)
                self._far = DiskThreads(count, *named, far=True)
                self._far._closed = self._closed
            return self._far

    def _add_thread(self) -> None:
        arguments = (self._errands, self._initializer, self._is_far)
        thread = threading.Thread(target=_serve, args=arguments, name=self._name, daemon=True)
        with suppress(RuntimeError, MemoryError):  # no thread is to be had now: the task waits for another, or is late
            thread.start()
            self._threads.append(thread)

    def _run(self, task: Task[T], call: Callable[[], T], client: int) -> None:
        if task.future.running():  # it comes from the disk, so nobody could cancel it meanwhile
            with self._lock:
                given_up = task in self._given_up
            if given_up:
                task.future.set_exception(StoreError("nobody waits for it"))
                return
        elif not task.future.set_running_or_notify_cancel():
            return
        task.begun = self._moved = self._clock()
        share = self._errands.share()
        try:
            with HandingOver(task.future):
                self._tell(task, call, client)
        finally:
            self._moved = self._clock()
            self._errands.took(share)

    def _tell(self, task: Task[T], call: Callable[[], T], client: int) -> None:
        try:
            task.future.set_result(call())
        except Beyond:
            beyond = self._beyond()  # first: from when it is far it is theirs, also to give up
            with self._lock:
                if task in self._given_up:
                    raise StoreError("nobody waits for it") from None
                task.asked, task.begun, task.far = self._clock(), None, True
            beyond._put(task, call, client)

    def late(self, task: Task[T]) -> bool:
        begun = task.begun  # which Beyond takes back meanwhile
        since = max(task.asked, self._of(task)._moved) if begun is None else begun
        return not task.future.done() and self._clock() - since > self.limit_s

    def lasts(self, seconds: float) -> bool:
        """Whether that is too long, of reads that belong together."""
        return seconds > self.limit_s

    def give_up(self, task: Task[T]) -> None:
        """Nobody waits for it any more."""
        if not task.future.cancel():
            with self._lock:  # or it goes on from the disk to the network meanwhile
                own = self._of(task)
                with nullcontext() if own is self else own._lock:
                    own._given_up = {*own._given_up, task}
            task.future.add_done_callback(own._forget)

    def _of(self, task: Task[T]) -> DiskThreads:
        """Whose task it is."""
        return self._far if task.far and self._far is not None else self

    def _forget(self, future: Future[Any]) -> None:
        """Nobody takes what was brought, so that need not stay."""
        with self._lock:
            self._given_up = {one for one in self._given_up if one.future is not future}

    def close(self) -> None:
        """What no thread has taken up is cancelled."""
        self._closed = True
        with self._lock:
            every = [self] if self._far is None else [self, self._far]
        for one in every:
            one._closed = True
            for future, _ in one._errands.drained():
                if not future.cancel():  # it went on from the disk to the network
                    future.set_exception(StoreError("the engine ends"))
            one._errands.end()
        last = monotonic() + CLOSING_S
        for thread in [thread for one in every for thread in one._threads]:
            thread.join(max(0.0, last - monotonic()))


def _serve(errands: Errands, initializer: Callable[[], None], far: bool) -> None:
    """On a thread. It knows nothing of the object that began it, which may be gone."""
    AT.disk, AT.network = not far, far
    initializer()
    while (errand := errands.get()) is not None:
        try:
            errand[1]()
        finally:
            del errand  # which knows it
            errands.done()
