"""Times to the first token, measured in turns so that a slow minute hits every case alike."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from statistics import median
from time import perf_counter, sleep
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from benchmarks.output import Row
from ragcache.cache import ChunkCache
from ragcache.errors import StoreError
from ragcache.linking import make_linker
from ragcache.report import COMPUTED, FULL, PREFIX, Report
from ragcache.store.findings import DISK, RAM
from ragcache.types import Segment

STOCK, FLOOR = ("stock", FULL), ("floor", "naive")  # case and linker
SERVED = ("served", "auto")  # as an application answers: chunks are linked only where that has been sooner
EXACT = "exact"  # the case of what vLLM's own prefix cache holds
TURN = "turn"  # that of a chat's second question
TIERS = {DISK: DISK, TURN: PREFIX}  # of others RAM
RESAMPLES = 2000  # of rounds, for the limit of a ratio
SETTLE_S = 1.0  # until whoever looks at the load of the machine sees that it has changed
Case = Callable[[], Report]
Name = TypeVar("Name", bound=Hashable)


def timed(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def first_token(cache: ChunkCache, segments: Sequence[Segment], linker: str) -> Report:
    """Answer with one token; the tokenizer has done its part before."""
    with closing(cache.generate(segments, max_tokens=1, linker=linker)) as generation:
        return generation.report


def one_token(cache: ChunkCache, segments: Sequence[Segment], linker: str) -> Report:
    """Of an answer of one token; unlike the torch engine's, it is told of where that is read."""
    generation = cache.generate(segments, max_tokens=1, linker=linker)
    list(generation)
    return generation.report


def interleaved(cases: Mapping[Name, Case], rounds: int, warm_ups: int = 1) -> dict[Name, list[Report]]:
    """Each case once per round, in the given order, after rounds that do not count."""
    for _ in range(warm_ups):
        for case in cases.values():
            case()
    reports: dict[Name, list[Report]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            reports[name].append(case())
    return reports


def beside(cases: Mapping[Name, Case], rounds: int, processes: int) -> dict[Name, list[Report]]:
    """The same while so many other processes are at full load."""
    reports: dict[Name, list[Report]] = {name: [] for name in cases}
    with BusyProcesses(processes) as others:
        for _ in range(rounds):
            with others.running():
                for name, case in cases.items():
                    reports[name].append(case())
    return reports


def median_ttft(reports: Sequence[Report]) -> float:
    return median(report.ttft_s for report in reports)


def paired(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The median ratio of rounds, and up to where it may well be: 95 % of the medians of resampled rounds are below."""
    ratios = np.array(ours) / np.array(theirs)
    draws = np.random.default_rng(seed).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    return float(np.median(ratios)), float(np.percentile(np.median(ratios[draws], axis=1), 95))


def check_tiers(linker: str, tier: str, reports: Sequence[Report]) -> None:
    """A chunk that had to be computed, where it was to come from `tier`, would make a figure of something else."""
    expected = COMPUTED if make_linker(linker).recompute_all else tier
    for report in reports:
        strange = {chunk.tier for chunk in report.chunks} - {expected}
        if strange:
            told = "; ".join(report.incidents) or "no incident is known"
            raise StoreError(
                f"{linker} from {expected}: some chunks were {', '.join(sorted(strange))} instead ({told})"
            )


def measured_rows(
    cases: Mapping[tuple[str, str], Case], plain: set[tuple[str, str]], rounds: int, others: int = 0
) -> list[Row]:
    """Idle, and beside so many other processes. `plain`: cases whose efficiency says nothing."""
    idle = interleaved(cases, rounds)
    rows = _rows(idle, 0, idle, plain)
    if others:
        rows += _rows(beside(cases, rounds, others), others, idle, plain)
    return rows


Reports = Mapping[tuple[str, str], Sequence[Report]]


def _rows(reports: Reports, others: int, idle: Reports, plain: set[tuple[str, str]]) -> list[Row]:
    for (place, spec), measured in reports.items():
        if (place, spec) != SERVED:
            check_tiers(spec, TIERS.get(place, RAM), measured)
    stock, floor = median_ttft(reports[STOCK]), median_ttft(reports[FLOOR])
    rows: list[Row] = []
    for case, measured in reports.items():
        slower = median_ttft(measured) / median_ttft(idle[case]) if others else None
        row = dict(_row(case, others, measured, stock, floor)) | {"slower": slower}
        rows.append(row | {"efficiency": None} if case in plain else row)
    return rows


def _row(case: tuple[str, str], others: int, reports: Sequence[Report], stock: float, floor: float) -> Row:
    """The efficiency says how close a link comes to its bound: placing everything, and its part of a prefill."""
    linked, part = median_ttft(reports), 0.0 if case[0] == EXACT else reports[0].part
    return {
        "case": case[0],
        "tokens": reports[0].prompt_tokens,
        "linker": case[1],
        "beside": others,
        "part": part,
        "ttft_s": linked,
        "efficiency": (floor + part * stock) / linked,
        "speedup": stock / linked,
        "own_s": None if case[0] == DISK or reports[0].own_s is None else median(one.own_s or 0.0 for one in reports),
    }


class BusyProcesses:
    """Other programs at full load. Use it in a `with`; they sleep until `running`."""

    def __init__(self, count: int):
        self._children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        self._send(signal.SIGSTOP)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._send(signal.SIGCONT)
        sleep(SETTLE_S)
        try:
            yield
        finally:
            self._send(signal.SIGSTOP)
            sleep(SETTLE_S)

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            child.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()
            child.wait()
