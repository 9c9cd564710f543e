"""Times to the first token, measured in turns so that a slow minute hits every case alike."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from ragcache.cache import ChunkCache
from ragcache.linking.base import Linker
from ragcache.report import Report
from ragcache.types import Segment

Case = tuple[ChunkCache, Sequence[Segment], Linker]
Name = TypeVar("Name", bound=Hashable)


def first_token(case: Case) -> Report:
    """Answer with one token; the tokenizer has done its part before."""
    cache, segments, linker = case
    return cache.generate(segments, max_tokens=1, linker=linker).report


def interleaved(cases: Mapping[Name, Case], rounds: int, warm_ups: int = 1) -> dict[Name, list[Report]]:
    """Each case once per round, after rounds that do not count."""
    for _ in range(warm_ups):
        for case in cases.values():
            first_token(case)
    reports: dict[Name, list[Report]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            reports[name].append(first_token(case))
    return reports


def median_ttft(reports: Sequence[Report]) -> float:
    return median(report.ttft_s for report in reports)
