"""Each system is asked the same requests in the same order; what it finds says what would be computed and brought."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

from app.models.loading import load_torch_model
from app.settings import Settings
from benchmarks.folder import bench_folder
from benchmarks.output import Row, common_settings, publish
from benchmarks.trace import CHUNK, NONE, PREFIX, SET, UNBOUNDED, TraceBenchOptions
from benchmarks.trace.caches import CACHES, LruCache, Tokens
from benchmarks.trace.costs import TraceCosts, measured
from benchmarks.trace.oracles import ORACLES
from benchmarks.trace.requests import Trace, TraceRequest, read_trace
from benchmarks.trace.stored import StoredPassages
from ragcache.errors import ConfigError
from ragcache.store.eviction import ORDERS
from ragcache.store.findings import DISK, RAM

# Which of its passages were there, or in which tier; those that were not are there now.
Found = Callable[[TraceRequest], Sequence[bool | str]]


def main(settings: Settings, options: TraceBenchOptions, out: Path) -> None:
    trace = read_trace(options.trace)
    if _skipped(trace, options) >= len(trace.requests):  # told before the model is loaded
        raise ConfigError(f"--skip {options.skip:g} leaves none of {len(trace.requests):,} requests: give less than 1")
    if options.memory > 1:
        raise ConfigError(f"--memory {options.memory:g} is a share of each capacity: give 1 at most")
    parts = load_torch_model(settings)
    costs = measured(parts, options)
    told = common_settings(parts) | options.settings() | {f"{name}_s": value for name, value in asdict(costs).items()}
    told |= {"passages": len(trace.tokens), "requests": len(trace.requests)}
    publish(told, replayed(trace, costs, options, settings.cache_dir), out)


def replayed(trace: Trace, costs: TraceCosts, options: TraceBenchOptions, cache_dir: Path) -> list[Row]:
    """Files are written beside that folder, and removed."""
    cases = [TraceCase(system, UNBOUNDED, None) for system in (NONE, PREFIX, SET)]
    for share in options.capacity:
        cases += [TraceCase(PREFIX, "lru", share), TraceCase(SET, "lru", share)]
        cases += [TraceCase(CHUNK, policy, share) for policy in options.policies]
    return [_row(trace, costs, options, case, cache_dir) for case in tqdm(cases, desc="cases")]


@dataclass(frozen=True)
class TraceCase:
    system: str
    policy: str
    share: float | None  # of all passages, that there is room for

    @property
    def is_stored(self) -> bool:
        """By the real store."""
        return self.system == CHUNK and self.policy in ORDERS


@dataclass
class _Tally:
    uses: int = 0
    tiers: Counter[bool | str] = field(default_factory=Counter)  # of uses
    total: int = 0
    computed: float = 0.0
    questions: int = 0
    first: list[float] = field(default_factory=list)

    def rate(self, *tiers: bool | str) -> float:
        return sum(self.tiers[tier] for tier in tiers) / max(1, self.uses)


def _row(trace: Trace, costs: TraceCosts, options: TraceBenchOptions, case: TraceCase, cache_dir: Path) -> Row:
    with _begun(trace, options, case, cache_dir) as find:
        tally = _tallied(trace, costs, options, case, find)
    tiers_told = options.memory > 0 and case.is_stored
    return {
        "system": case.system,
        "policy": case.policy,
        "capacity": case.share,
        "hit_rate": tally.rate(*(tier for tier in tally.tiers if tier)),
        "ram_hit_rate": tally.rate(RAM) if tiers_told else None,
        "disk_hit_rate": tally.rate(DISK) if tiers_told else None,
        "tokens_total": tally.total,
        "tokens_computed": round(tally.computed),
        "questions": tally.questions,
        "ttft_p50": float(np.median(tally.first)),
        "ttft_p99": float(np.quantile(tally.first, 0.99)),
    }


def _tallied(trace: Trace, costs: TraceCosts, options: TraceBenchOptions, case: TraceCase, find: Found) -> _Tally:
    tally, skipped, part = _Tally(), _skipped(trace, options), options.part if case.system == CHUNK else 0.0
    for turn, request in enumerate(trace.requests):
        tiers = find(request)
        if turn < skipped:
            continue
        lengths = trace.tokens[list(request.passages)] if request.passages else np.zeros(0, np.int64)
        hit, in_memory = _tokens(lengths, [bool(one) for one in tiers]), _tokens(lengths, [one == RAM for one in tiers])
        # What stands first, right behind the System segment, is as it was computed.
        linked = hit - int(lengths[0]) if tiers and tiers[0] else hit
        passages = int(lengths.sum())
        computed = passages - hit + part * linked
        tally.uses += len(tiers)
        tally.tiers.update(tiers)
        tally.total += passages
        tally.computed += computed
        tally.questions += request.question
        tokens = trace.system + passages + request.question
        loaded = hit - in_memory if options.memory else hit  # where no tiers are told apart, all of it is a disk's
        tally.first.append(costs.first_token(computed + request.question, loaded, tokens))
    return tally


def _tokens(lengths: Tokens, chosen: list[bool]) -> int:
    return int(lengths[chosen].sum()) if chosen else 0


def _skipped(trace: Trace, options: TraceBenchOptions) -> int:
    """Requests that do not count."""
    return math.ceil(options.skip * len(trace.requests))


# -- systems ----------------------------------------------------------------------------------------------------------


@contextmanager
def _begun(trace: Trace, options: TraceBenchOptions, case: TraceCase, cache_dir: Path) -> Iterator[Found]:
    capacity = sys.maxsize if case.share is None else int(case.share * int(trace.tokens.sum()))
    if case.is_stored:
        with (
            bench_folder(cache_dir) if options.memory else nullcontext() as folder,
            closing(StoredPassages(trace, capacity, case.policy, options.memory, folder)) as stored,
        ):
            yield stored.find
    elif case.system == CHUNK:
        yield _chunks(trace, _skipped(trace, options), case.policy, capacity)
    else:
        yield _nothing if case.system == NONE else (_prefixes if case.system == PREFIX else _sets)(trace, capacity)


def _nothing(request: TraceRequest) -> list[bool]:
    return [False] * len(request.passages)


def _chunks(trace: Trace, skipped: int, policy: str, capacity: int) -> Found:
    if policy in CACHES:
        cache = CACHES[policy](trace.tokens, capacity)
    else:
        before = sum(len(one.passages) for one in trace.requests[:skipped])
        cache = ORACLES[policy](trace.tokens, capacity, trace.uses, before)
    return lambda request: [cache.ask(place) for place in request.passages]


def _prefixes(trace: Trace, capacity: int) -> Found:
    """Each passage behind the very ones that stood before it, which go after it: nothing is left hanging."""
    names: dict[tuple[int, int], int] = {}
    paths = list(_paths(trace, names))
    lengths = np.zeros(len(names), np.int64)
    for request, path in zip(trace.requests, paths, strict=True):
        lengths[path] = trace.tokens[list(request.passages)]
    cache, turns = LruCache(lengths, capacity), iter(paths)

    def find(_: TraceRequest) -> list[bool]:
        path = next(turns)
        there = {place: cache.ask(place) for place in reversed(path)}  # the first is used last, so it stays longest
        found = [there[place] for place in path]
        return [all(found[: at + 1]) for at in range(len(found))]

    return find


def _paths(trace: Trace, names: dict[tuple[int, int], int]) -> Iterator[list[int]]:
    """Of each request, the places of its prefixes. `names`: a prefix and the passage behind it."""
    for request in trace.requests:
        path, at = list[int](), -1
        for place in request.passages:
            at = names.setdefault((at, place), len(names))
            path.append(at)
        yield path


def _sets(trace: Trace, capacity: int) -> Found:
    """All of a request's passages, in whatever order, or none."""
    names: dict[frozenset[int], int] = {}
    places = [names.setdefault(frozenset(request.passages), len(names)) for request in trace.requests]
    lengths = np.zeros(len(names), np.int64)
    for request, place in zip(trace.requests, places, strict=True):
        lengths[place] = trace.tokens[list(request.passages)].sum() if request.passages else 0
    cache, turns = LruCache(lengths, capacity), iter(places)

    def find(request: TraceRequest) -> list[bool]:
        there = cache.ask(next(turns))
        return [there] * len(request.passages)

    return find
