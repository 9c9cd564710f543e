"""Times to the first token, measured in turns so that a slow minute hits every case alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from statistics import median
from typing import TypeVar

from benchmarks.busy import BusyProcesses
from ragcache.cache import ChunkCache
from ragcache.errors import StoreError
from ragcache.linking import make_linker
from ragcache.report import COMPUTED, Report
from ragcache.types import Segment

Case = Callable[[], Report]
Name = TypeVar("Name", bound=Hashable)


def first_token(cache: ChunkCache, segments: Sequence[Segment], linker: str) -> Report:
    """Answer with one token; the tokenizer has done its part before."""
    with closing(cache.generate(segments, max_tokens=1, linker=linker)) as generation:
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
