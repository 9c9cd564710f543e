"""What one process does at a time: jobs of different owners, whose files are read beside each other. One computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.errors import IngestStopped
from app.library.catalog.serving_records import StoredJob

LANES = 2  # jobs at a time, so that nobody's file holds up all; their readers share the memory that there is for them
LOOK_S = 0.5  # how often whoever waits looks whether it is to stop


class Lanes:
    """Threads share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: list[StoredJob] = []
        self._line: list[object] = []  # who computes, and behind it those who want to, as they came

    def begin(self, job: StoredJob) -> None:
        with self._changed:
            self._jobs.append(job)

    def end(self, job: StoredJob) -> None:
        with self._changed:
            self._jobs.remove(job)

    def owners(self, but: StoredJob | None = None) -> set[str]:
        """Of the jobs that are done now."""
        with self._changed:
            return {one.owner for one in self._jobs if one is not but}

    def share(self, job: StoredJob) -> bool:
        """Whether another one is into the same collection."""
        with self._changed:
            return any(one is not job and one.collection_id == job.collection_id for one in self._jobs)

    @property
    def is_risky(self) -> bool:
        """Whether one of them has been tried before: it may end the process, and with that others, which would count as
        tries of theirs.
        """
        with self._changed:
            return any(one.attempts > 1 for one in self._jobs)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for whoever computes."""
        with self._changed:
            return len(self._line) > 1

    @contextmanager
    def computing(self, stopped: Callable[[], bool]) -> Iterator[None]:
        """Waits while others do. Raises IngestStopped where it has `stopped` meanwhile."""
        own = object()
        with self._changed:
            self._line.append(own)
        try:
            with self._changed:
                while self._line[0] is not own:
                    if stopped():
                        raise IngestStopped("it was stopped while others computed")
                    self._changed.wait(LOOK_S)
            yield
        finally:
            with self._changed:
                self._line.remove(own)
                self._changed.notify_all()
