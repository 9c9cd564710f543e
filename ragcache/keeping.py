"""What can wait until nobody waits for an answer: the capture of what a prompt lacked."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from time import monotonic

from ragcache.errors import FAULTS, reason_of

logger = logging.getLogger(__name__)

Task = Callable[[], list[str]]  # returns what went wrong in it
Pause = Callable[[], None]  # called now and then amid a computation that can wait; returns when it may go on
MOST_WAITING = 64  # tasks; of what comes when there are as many, the oldest is left out: another prompt will lack it
QUIET_S = 0.05  # for which nobody computes, before a task goes on: the next token is asked for at once
# Where answers never cease, a task that was held up for so long goes on for a TURN_S: else what everybody asks for
# would be computed in full each time.
HELD_S = 10.0
TURN_S = 0.2
RECHECK_S = 0.2  # a finaliser may end an answer on the very thread that is about to wait, which then nobody wakes
CLOSING_S = 10.0  # after which a keeper that closes begins no more tasks
PATIENCE_S = 10.0  # for a task that is to end amid its computation


@contextmanager
def until_end(begin: Callable[[], Callable[[], None]]) -> Iterator[None]:
    """What begins here, until the end of the block."""
    end = begin()
    try:
        yield
    finally:
        end()


class Keeper:
    """Runs tasks one after the other, on a thread of its own, and holds on amid one while an answer is computed.

    Threads may share it. Close it: what waits by then is done first, within bounds. What waits when the program ends is
    left out.
    """

    def __init__(self, done: Callable[[], None] = lambda: None, clock: Callable[[], float] = monotonic):
        """`done` runs on the thread after each task, and when one holds on."""
        self._made_by = done, clock
        self._begin()

    def _begin(self) -> None:
        self._work = _Work(*self._made_by)
        # Python ends threads that still compute when the program ends, and torch the whole process with them.
        weakref.finalize(self, self._work.end)

    @property
    def _own(self) -> _Work:
        """A child of a fork has no thread of its parent's, and perhaps a lock that was held."""
        if self._work.process != os.getpid():
            self._begin()
        return self._work

    def answering(self) -> AbstractContextManager[None]:
        """While somebody waits for what is computed inside."""
        return until_end(self.begin_answering)

    def begin_answering(self) -> Callable[[], None]:
        """Ends what it begins at its first call, by any thread, a finaliser among them."""
        work = self._own
        ends = deque([work.answering])
        work.answering(1)

        def end() -> None:
            with suppress(IndexError):
                ends.pop()(-1)

        return end

    def later(self, task: Task, *, last: bool = False) -> None:
        """What it returns is for the next report. `last`: only when no other task waits."""
        self._own.add(task, last)

    def pause(self) -> None:
        """Of the task that runs: until nobody waits for an answer, or it has its turn all the same."""
        self._own.pause()

    def disturbed(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Amid a task that cannot hold on: it is called when somebody begins to wait for an answer inside, or waits
        already; by his thread, so it must not block.
        """
        return until_end(partial(self._own.watch, call))

    @property
    def is_urgent(self) -> bool:
        """Whether a task that can wait longer than others should end where it is: others wait, or the keeper ends."""
        return self._own.is_urgent

    def settle(self) -> None:
        """Wait until all is done."""
        self._own.settle()

    def take_told(self) -> list[str]:
        """What went wrong since the last time."""
        return self._own.take_told()

    def close(self) -> None:
        """Nobody waits for an answer any more. What is not begun in CLOSING_S is left out; when interrupted, all that
        is not done.
        """
        self._own.close()


class _Ended(BaseException):
    """Out of a task that is to end where it is."""


class _Work:
    """A keeper's, in one process."""

    def __init__(self, done: Callable[[], None], clock: Callable[[], float]):
        self.process = os.getpid()
        self._done, self._clock = done, clock
        self._change = threading.Condition()  # over a lock that a thread may take again: finalisers run anywhere
        self._tasks, self._last = deque[Task](maxlen=MOST_WAITING), deque[Task](maxlen=MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._answering, self._quiet, self._turn = 0, 0.0, 0.0
        self._hurried: float | None = None  # since when
        self._ended = False
        self._watching: list[Callable[[], None]] = []  # who is told that somebody waits
        self._told = deque[str](maxlen=MOST_WAITING)

    def answering(self, more: int) -> None:
        if self.process != os.getpid():  # begun before a fork
            return
        with self._change:
            self._answering += more
            self._quiet = self._clock() + QUIET_S
            self._change.notify_all()
            watching = list(self._watching) if more > 0 else []
        for call in watching:
            call()

    def watch(self, call: Callable[[], None]) -> Callable[[], None]:
        """Until what is returned is called."""
        with self._change:
            self._watching.append(call)
            disturbed = self._answering > 0
        if disturbed:
            call()
        return partial(self._watching.remove, call)

    def add(self, task: Task, last: bool) -> None:
        with self._change:
            (self._last if last else self._tasks).append(task)
        self._work_on(None)

    def _work_on(self, ends: threading.Thread | None) -> None:
        """On a new thread if something waits: where none runs, or in place of one that ends."""
        thread = threading.Thread(target=self._run, name="ragcache-keep", daemon=True)
        with self._change:
            if self._thread is not ends:
                return
            self._thread = thread if (self._tasks or self._last) and not self._ended else None
            self._change.notify_all()
            if self._thread is None:
                return
        with ExitStack() as failed:
            failed.callback(self._not_begun, thread)
            try:
                thread.start()  # without the lock: it waits until the other thread has begun, where finalisers run too
            except RuntimeError as error:
                self._not_begun(thread, not_captured(error))
            else:
                failed.pop_all()

    def _not_begun(self, thread: threading.Thread, told: str = "") -> None:
        """There are no more threads to be had, as is `told`, or Ctrl-C came just then."""
        with self._change:
            if self._thread is thread and thread.ident is None:
                self._thread = None
                if told:
                    self._leave_out()
                    self._told.append(told)
                self._change.notify_all()

    def pause(self) -> None:
        with self._change:
            waits = self._waits()
        if waits > 0:
            self._done()  # what it keeps from an answer meanwhile
        with self._change:
            held = self._clock() + HELD_S
            while (waits := self._waits()) > 0:
                if self._clock() >= held:
                    self._turn = self._clock() + TURN_S
                    break
                self._change.wait(min(waits, RECHECK_S))
            if self._ended:
                raise _Ended

    @property
    def is_urgent(self) -> bool:
        with self._change:
            return bool(self._tasks) or self._hurried is not None or self._ended

    def _waits(self) -> float:
        """How long a task waits before it goes on, if nothing changes."""
        now = self._clock()
        if self._hurried is not None or self._ended or now < self._turn:
            return 0.0
        return HELD_S if self._answering else self._quiet - now

    def settle(self) -> None:
        with self._change:
            self._change.wait_for(lambda: self._thread is None)

    def take_told(self) -> list[str]:
        with self._change:
            told = list(self._told)
            self._told.clear()
            return told

    def close(self) -> None:
        with self._change:
            self._hurried = self._clock()
            self._change.notify_all()
        try:
            self.settle()
        except KeyboardInterrupt:
            self.end()
            raise
        finally:
            with self._change:
                self._hurried = None

    def end(self) -> None:
        """Amid a task too."""
        if self.process != os.getpid():
            return
        with self._change:
            self._ended = True
            self._leave_out()
            self._change.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            with suppress(RuntimeError):  # it is being started
                thread.join(PATIENCE_S)

    def _run(self) -> None:
        try:
            while (task := self._next()) is not None:
                told = _told(task)
                self._done()
                with self._change:
                    self._told.extend(told)
        except _Ended:
            pass
        finally:
            self._work_on(threading.current_thread())  # what waits behind a task that broke its thread

    def _leave_out(self) -> None:
        """What has not begun."""
        self._tasks.clear()
        self._last.clear()

    def _next(self) -> Task | None:
        """None ends the thread."""
        if self._tasks or self._last:
            self.pause()
        with self._change:
            if self._hurried is not None and self._clock() - self._hurried > CLOSING_S:
                self._leave_out()
            if waiting := self._tasks or self._last:
                return waiting.popleft()
            self._thread = None  # a task that is added from now on gets another
            self._change.notify_all()
            return None


def _told(task: Task) -> list[str]:
    try:
        return task()
    except FAULTS as error:
        logger.warning("what a prompt lacked was not captured", exc_info=True)
        return [not_captured(error)]


def not_captured(error: Exception) -> str:
    return f"what a prompt lacked was not captured: {reason_of(error)}"
