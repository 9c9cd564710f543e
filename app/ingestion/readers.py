"""Reading many files in processes of their own, in order, a little ahead of whoever takes the results."""

from __future__ import annotations

import json
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from app.client.amounts import size
from app.ingestion.survey import Pending
from app.ingestion.worker import PATIENCE, Job, Outcome, ReadFile, Reply, Same, Unread, memory_for, short_of_memory
from app.loaders.base import MIB, ParseLimits
from app.loaders.confinement import OUT_OF_MEMORY

# Bytes of files that are read ahead, which take several times as much memory in their processes, and of texts that wait
# here for their turn.
AHEAD = 32 * MIB
# Seconds that a file may take, and more for each megabyte of it, up to PATIENCE. The slowest sound ones are PDFs of
# nothing but text, which read a megabyte in 10 s, and in 50 beside busy processes.
LEAST_PATIENCE = 120.0
PATIENCE_PER_MIB = 60.0
Enter = Callable[[int], None]  # waits until there is room for so many bytes
ENDING = 5.0  # seconds from the end of a child's answers to its own
MOST = 4  # processes, unless more are asked for: they wait for the embedder most of the time
# The child finds the packages where we did, also in a program that has changed its path, and none in the folder that it
# is started in (-P): a document may be called json.py.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from app.ingestion.worker import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)


class Readers:
    """Use it in a `with`. The processes start when the first files come."""

    def __init__(
        self,
        workers: int | None = None,
        limits: ParseLimits | None = None,
        patience: float = PATIENCE,
        share: int = 1,
    ):
        """`share`: so many of them, each with as many processes, have the memory of one together."""
        self._limits = limits or ParseLimits()
        self._patience = patience
        self._workers = workers or min(MOST, os.cpu_count() or 1)
        self._share = share
        self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="reader")
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._all: list[_Process] = []
        self._backlog = Backlog(AHEAD)
        self._stopped = False

    def read(self, files: Iterable[Pending], retry: bool = False) -> Iterator[tuple[Pending, Outcome]]:
        """In the order of the files. `retry` parses files anew that failed with the same content before."""
        self._backlog.close()
        backlog = self._backlog = Backlog(AHEAD)
        waiting: deque[tuple[Pending, Future[Outcome]]] = deque()
        nbytes = 0
        try:
            for number, file in enumerate(files):
                while waiting and (len(waiting) >= 4 * self._workers or nbytes + file.size > AHEAD):
                    nbytes -= waiting[0][0].size
                    yield _taken(waiting, backlog)
                enter = partial(backlog.enter, number)
                waiting.append((file, self._threads.submit(self._read, self._job(file, retry), enter)))
                nbytes += file.size
            while waiting:
                yield _taken(waiting, backlog)
        finally:
            backlog.close()  # whoever leaves in the middle wants no more of them

    def _job(self, file: Pending, retry: bool) -> Job:
        failed = file.state is not None and file.state.state == "failed"
        known = None if failed and retry else file.known_hash
        scaled = LEAST_PATIENCE + PATIENCE_PER_MIB * file.size / MIB
        return Job(file.source, known, self._limits, min(self._patience, scaled), file.path)

    def _read(self, job: Job, enter: Enter) -> Outcome:
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = _Process(memory_for(self._limits.max_memory, self._workers * self._share))
            self._all.append(process)
            if self._stopped:
                process.stop()
        outcome = process.read(job, enter)
        if process.alive:
            self._idle.put(process)
        return outcome

    def stop(self) -> None:
        """From any thread, and in the middle of a file. Those that are not read by then are told as unread."""
        self._stopped = True
        for process in list(self._all):
            process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.stop()  # nobody wants the answers any more
        self._backlog.close()
        self._threads.shutdown()
        for process in self._all:
            process.bury()


class ReadBefore(Readers):
    """Of one file, which was read before, and is read again only where its document has changed since."""

    def __init__(self, outcome: Outcome, share: int):
        super().__init__(1, share=share)
        self._outcome = outcome

    def read(self, files: Iterable[Pending], retry: bool = False) -> Iterator[tuple[Pending, Outcome]]:
        for file in files:
            outcome, is_in = self._outcome, file.known_hash if file.is_ready else None
            if isinstance(outcome, Same) and outcome.stamp.content_hash != is_in:
                yield from super().read([file], retry)
            elif isinstance(outcome, ReadFile) and outcome.stamp.content_hash == is_in:
                yield file, Same(outcome.stamp)
            else:
                yield file, outcome


def _taken(waiting: deque[tuple[Pending, Future[Outcome]]], backlog: Backlog) -> tuple[Pending, Outcome]:
    file, future = waiting[0]
    with backlog.turn():
        outcome = future.result()
    waiting.popleft()
    return file, outcome


class Backlog:
    """Texts that wait for their turn, in bytes of memory. Whose turn it is comes in whatever it takes."""

    def __init__(self, most: int):
        self._most = most
        self._changed = threading.Condition()
        self._held: dict[int, int] = {}  # by their numbers, which count from 0
        self._taken = 0  # how many are gone
        self._called = 0  # how many may come in at once

    @property
    def nbytes(self) -> int:
        return sum(self._held.values())

    def enter(self, number: int, nbytes: int) -> None:
        """Waits for room, or for the turn of this number."""
        with self._changed:
            self._changed.wait_for(lambda: number < self._called or self.nbytes + nbytes <= self._most)
            self._held[number] = nbytes

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Of the next number, which is gone at the end of the block."""
        with self._changed:
            self._called = max(self._called, self._taken + 1)
            self._changed.notify_all()
        yield
        with self._changed:
            self._held.pop(self._taken, None)  # a process that died brought nothing
            self._taken += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._called = sys.maxsize
            self._changed.notify_all()


@dataclass
class _Process:
    """A child, and one job at a time for it."""

    memory: int  # bytes that it may take

    def __post_init__(self) -> None:
        self.alive = True
        self._late = False
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, json.dumps(sys.path), str(os.getpid()), str(self.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # PDFium and others complain there
            process_group=0,  # a Ctrl-C is for us, who then stop it
        )

    def read(self, job: Job, enter: Enter) -> Outcome:
        """A child that dies takes one file with it, and not the ingest."""
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            with self._within(job.seconds):
                pickle.dump(job, self._child.stdin)
                self._child.stdin.flush()
                nbytes: int = pickle.load(self._child.stdout)
            enter(nbytes)
            with self._within(job.seconds):
                answer: Reply = pickle.load(self._child.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):  # cut off in the middle of an answer, perhaps
            return self._buried(job.seconds if self._late else None)
        except MemoryError:  # here, where the answer does not fit
            self.bury()
            return short_of_memory()
        for record in answer.log:
            logging.getLogger(record.name).handle(record)
        if answer.spent:
            self.bury()
        if isinstance(answer.outcome, ReadFile):
            warned = (record.getMessage() for record in answer.log if record.levelno >= logging.WARNING)
            return replace(answer.outcome, notes=tuple(warned))
        return answer.outcome

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """A block that waits for the child, which ends when that takes longer."""
        timer = threading.Timer(seconds, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._late = True
        self._child.kill()

    def stop(self) -> None:
        """From any thread; whoever waits for an answer then sees the end of it."""
        self._child.kill()

    def bury(self) -> int:
        """Leave nothing of it -> its exit status."""
        self.alive = False
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with suppress(OSError):  # what it was never told
                pipe.close()
        return self._child.wait()

    def _buried(self, late: float | None) -> Outcome:
        """What the system or a library did to it is no error of Python's. `late`: seconds that were too many."""
        with suppress(subprocess.TimeoutExpired):  # it may still be ending in its own way, which its status tells
            self._child.wait(ENDING)
        status, room = self.bury(), size(self.memory)
        if late is not None or status == -signal.SIGXCPU:
            told = f"{late:,.0f} seconds" if late is not None else "its share of the cores' time"
            return Unread(f"takes more than {told} to be read: split or convert it")
        if status == -signal.SIGKILL:
            return Unread(f"{short_of_memory().reason} (the system has stopped the program that reads it)")
        if status == OUT_OF_MEMORY:
            return Unread(f"needs more memory to be read than the {room} that it may take: split it")
        return Unread(
            f"crashes the program that reads it (exit status {status}), or needs more memory than the "
            f"{room} that it may take: split it, or convert it to another format"
        )
