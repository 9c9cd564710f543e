"""What can wait until nobody waits for an answer: the capture of what a prompt lacked."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from ragcache.faults import FAULTS, reason_of

logger = logging.getLogger(__name__)

Task = Callable[[], list[str]]  # returns what went wrong in it
Pause = Callable[[], None]  # called now and then amid a computation that can wait; returns when it may go on
MOST_WAITING = 64  # tasks; of what comes when there are as many, the oldest is left out: another prompt will lack it
QUIET_S = 0.05  # for which nobody computes, before a task goes on: the next token is asked for at once


class Keeper:
    """Runs tasks one after the other, on a thread of its own, and holds on amid one while an answer is computed.

    Threads may share it. Close it: what waits by then is done first.
    """

    def __init__(self, done: Callable[[], None] = lambda: None, clock: Callable[[], float] = monotonic):
        """`done` runs on the thread after each task."""
        self._done, self._clock = done, clock
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._change = threading.Condition()
        self._tasks = deque[Task](maxlen=MOST_WAITING)
        self._running = self._closed = False
        self._answering, self._quiet = 0, 0.0
        self._told: list[str] = []

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While somebody waits for what is computed inside."""
        self._forked()
        with self._change:
            self._answering += 1
        try:
            yield
        finally:
            with self._change:
                self._answering -= 1
                self._quiet = self._clock() + QUIET_S
                self._change.notify_all()

    def later(self, task: Task) -> None:
        """What it returns is for the next report."""
        self._forked()
        with self._change:
            self._tasks.append(task)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="ragcache-keep", daemon=True).start()

    def pause(self) -> None:
        """Of the task that runs: until nobody waits for an answer."""
        with self._change:
            while not self._closed and (self._answering or self._clock() < self._quiet):
                self._change.wait(None if self._answering else max(0.0, self._quiet - self._clock()))

    def settle(self) -> None:
        """Wait until all is done."""
        self._forked()
        with self._change:
            self._change.wait_for(lambda: not self._running)

    def take_told(self) -> list[str]:
        """What went wrong since the last time."""
        self._forked()
        with self._change:
            told, self._told = self._told, []
            return told

    def close(self) -> None:
        """Nobody waits for an answer any more."""
        self._forked()
        with self._change:
            self._closed = True
            self._change.notify_all()
        self.settle()
        with self._change:
            self._closed = False

    def _run(self) -> None:
        while True:
            self.pause()
            with self._change:
                if not self._tasks:
                    self._running = False
                    self._change.notify_all()
                    return
                task = self._tasks.popleft()
            told = _told(task)
            self._done()
            with self._change:
                self._told = [*self._told, *told][-MOST_WAITING:]

    def _forked(self) -> None:
        """A child has no thread of its parent's, and perhaps a lock that was held."""
        if self._process != os.getpid():
            self._begin()


def _told(task: Task) -> list[str]:
    try:
        return task()
    except FAULTS as error:
        logger.warning("what an earlier prompt lacked was not captured", exc_info=True)
        return [f"what an earlier prompt lacked was not captured: {reason_of(error)}"]
