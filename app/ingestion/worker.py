"""The process that reads files. `serve` answers pickled jobs on stdin with pickled answers on stdout, until the end.

A process, and not a thread, since the libraries that read formats may crash on a hostile file, or take the whole memory
of the process with them.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from dataclasses import dataclass
from typing import BinaryIO

from app.ingestion.confinement import confine, confine_time, near_the_limit
from app.ingestion.outcome import Job, Outcome, ReadFile, read

OUT_OF_MEMORY = 77  # the exit status of a process that has no room even for its answer
LINE = 400  # bytes of memory that a line with its box takes


@dataclass(frozen=True)
class Reply:
    outcome: Outcome
    log: tuple[logging.LogRecord, ...]  # what the loaders said meanwhile
    spent: bool  # whether the next file needs a fresh process, of which it can be told what that file took


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        self.records.append(record)

    def taken(self) -> tuple[logging.LogRecord, ...]:
        records, self.records = tuple(self.records), []
        return records


def serve(parent: int, memory: int) -> None:
    """Before each answer goes the memory that it takes, and the answer when its reader has room for it.

    The end of stdin is the end, and so is that of the parent. `memory`: bytes that this process may take.
    """
    confine(parent, memory)
    with os.fdopen(os.dup(0), "rb") as jobs, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints must not come between the answers
        kept = _Kept()
        logging.getLogger("app").addHandler(kept)
        _serve(jobs, answers, kept)


def _serve(jobs: BinaryIO, answers: BinaryIO, kept: _Kept) -> None:
    while True:
        try:
            job: Job = pickle.load(jobs)
        except EOFError:
            return
        confine_time(job.seconds)
        outcome = read(job)
        try:
            pickle.dump(_nbytes(outcome), answers)
            answers.flush()
            pickle.dump(Reply(outcome, kept.taken(), near_the_limit()), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:
            return
        except MemoryError:
            os._exit(OUT_OF_MEMORY)


def _nbytes(outcome: Outcome) -> int:
    """Of the memory that it takes, about: a few bytes of a file may stand for any number of characters."""
    if not isinstance(outcome, ReadFile):
        return 0
    parsed = outcome.parsed
    return sys.getsizeof(parsed.text) + LINE * (len(parsed.lines) + len(parsed.pages))
