"""Each system is asked the same requests in the same order; what it finds says what would be computed and brought."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from app.models.loading import load_torch_model
from app.settings import Settings
from benchmarks.output import Row, common_settings, publish
from benchmarks.trace import CHUNK, NONE, PREFIX, SET, UNBOUNDED, TraceBenchOptions
from benchmarks.trace.caches import CACHES, LruCache
from benchmarks.trace.costs import TraceCosts, measured
from benchmarks.trace.oracles import ORACLES
from benchmarks.trace.requests import Trace, TraceRequest, read_trace
from benchmarks.trace.stored import StoredPassages
from ragcache.errors import ConfigError
from ragcache.store.eviction import ORDERS

Found = Callable[[TraceRequest], list[bool]]  # which of its passages were there; those that were not are there now


def main(settings: Settings, options: TraceBenchOptions, out: Path) -> None:
    trace = read_trace(options.trace)
    if _skipped(trace, options) >= len(trace.requests):  # told before the model is loaded
        raise ConfigError(f"--skip {options.skip:g} leaves none of {len(trace.requests):,} requests: give less than 1")
    parts = load_torch_model(settings)
    costs = measured(parts, options)
    told = common_settings(parts) | options.told() | {f"{name}_s": value for name, value in asdict(costs).items()}
    publish(
        told | {"passages": len(trace.tokens), "requests": len(trace.requests)}, replayed(trace, costs, options), out
    )


def replayed(trace: Trace, costs: TraceCosts, options: TraceBenchOptions) -> list[Row]:
    everything = int(trace.tokens.sum())
    cases: list[tuple[str, str, float | None, Callable[[], Found]]] = [
        (NONE, UNBOUNDED, None, lambda: _nothing),
        (PREFIX, UNBOUNDED, None, partial(_prefixes, trace, sys.maxsize)),
        (SET, UNBOUNDED, None, partial(_sets, trace, sys.maxsize)),
    ]
    for share in options.capacity:
        capacity = int(share * everything)
        cases += [(PREFIX, "lru", share, partial(_prefixes, trace, capacity)),
                  (SET, "lru", share, partial(_sets, trace, capacity))]  # fmt: skip
        cases += [
            (CHUNK, policy, share, partial(_chunks, trace, _skipped(trace, options), policy, capacity))
            for policy in options.policies
        ]
    return [_row(trace, costs, options, *case) for case in tqdm(cases, desc="cases")]


@dataclass
class _Tally:
    uses: int = 0
    hits: int = 0
    total: int = 0
    computed: float = 0.0
    questions: int = 0
    first: list[float] = field(default_factory=list)


def _row(
    trace: Trace, costs: TraceCosts, options: TraceBenchOptions, system: str, policy: str, share: float | None,
    begun: Callable[[], Found],
) -> Row:  # fmt: skip
    tally, find, skipped = _Tally(), begun(), _skipped(trace, options)
    part = options.part if system == CHUNK else 0.0
    for turn, request in enumerate(trace.requests):
        there = find(request)
        if turn < skipped:
            continue
        lengths = trace.tokens[list(request.passages)] if request.passages else np.zeros(0, np.int64)
        hit = int(lengths[there].sum()) if there else 0
        # What stands first, right behind the System segment, is as it was computed.
        linked = hit - int(lengths[0]) if there and there[0] else hit
        passages = int(lengths.sum())
        computed = passages - hit + part * linked
        tally.uses += len(there)
        tally.hits += sum(there)
        tally.total += passages
        tally.computed += computed
        tally.questions += request.question
        tokens = trace.system + passages + request.question
        tally.first.append(costs.first_token(computed + request.question, hit, tokens))
    return {
        "system": system,
        "policy": policy,
        "capacity": share,
        "hit_rate": tally.hits / max(1, tally.uses),
        "tokens_total": tally.total,
        "tokens_computed": round(tally.computed),
        "questions": tally.questions,
        "ttft_p50": float(np.median(tally.first)),
        "ttft_p99": float(np.quantile(tally.first, 0.99)),
    }


def _skipped(trace: Trace, options: TraceBenchOptions) -> int:
    """Requests that do not count."""
    return math.ceil(options.skip * len(trace.requests))


# -- systems ----------------------------------------------------------------------------------------------------------


def _nothing(request: TraceRequest) -> list[bool]:
    return [False] * len(request.passages)


def _chunks(trace: Trace, skipped: int, policy: str, capacity: int) -> Found:
    if policy in ORDERS:
        return StoredPassages(trace, capacity, policy).find
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
