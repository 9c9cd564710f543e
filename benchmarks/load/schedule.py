"""What arrives, and each system's figures under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import mean
from typing import Any

from benchmarks.load import SYSTEMS, LoadBenchOptions
from benchmarks.load.arrivals import Popularity, percentile, poisson_arrivals
from benchmarks.load.clients import Ask, Stream, open_loop
from benchmarks.output import Row

BURST, CASE = range(2)  # so that a case's requests are not those of the warm-up before it
HIDDEN = ("load", "itl_p50")  # of the rows' table


@dataclass(frozen=True)
class LoadRequest:
    """Which chunks are asked about, and a number that makes its question its own."""

    chunks: tuple[int, ...]
    number: int


@dataclass
class Counted:
    """What one request's engine told at its end."""

    part: float = 1.0  # of the prompt's tokens before the question: computed, probes charged


Serve = Callable[[LoadRequest, Counted], Ask]


@dataclass(frozen=True)
class Schedule:
    """The same requests at the same moments for every system."""

    options: LoadBenchOptions
    available: int  # chunks

    def burst(self, serve: Serve, turn: int, name: str) -> float:
        """Requests all at once, others in each turn -> how many are answered per second."""
        requests = self._requests(self.options.burst, (BURST, turn))
        streams = open_loop([(0.0, serve(request, Counted())) for request in requests], name)
        return len(streams) / max(stream.tokens[-1] for stream in streams)

    def case(self, system: str, serve: Serve, saturation: float, load: float) -> Row:
        options = self.options
        rate, seed = load * saturation, (CASE, options.loads.index(load))
        moments = poisson_arrivals(rate, options.seconds, (options.seed, *seed))
        requests = self._requests(len(moments), seed)
        told = [Counted() for _ in requests]
        asks = [serve(request, counted) for request, counted in zip(requests, told, strict=True)]
        streams = open_loop(list(zip(moments, asks, strict=True)), f"{system} at {load:g}")
        return summarise(system, load, rate, streams, told)

    def _requests(self, count: int, seed: tuple[int, int]) -> list[LoadRequest]:
        options = self.options
        popularity = Popularity(self.available, options.zipf, options.seed)
        drawn = popularity.draw(count, options.chunks, (options.seed, *seed))
        return [LoadRequest(chunks, number) for number, chunks in enumerate(drawn)]


def summarise(system: str, load: float, rate: float, streams: Sequence[Stream], told: Sequence[Counted]) -> Row:
    first = [stream.ttft for stream in streams]
    gaps = list(chain.from_iterable(stream.gaps for stream in streams))
    return {
        "system": system,
        "load": load,
        "rate": rate,
        "throughput": len(streams) / max(stream.tokens[-1] for stream in streams),
        "ttft_p50": percentile(first, 50),
        "ttft_p99": percentile(first, 99),
        "itl_p50": percentile(gaps, 50) if gaps else None,
        "itl_p99": percentile(gaps, 99) if gaps else None,
        "part": mean(counted.part for counted in told),
        "n": len(streams),
    }


def sustained(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """For each p99 of the first token that another system had: the rates up to which it and ours stay within that.

    Left out where neither was measured beyond: the ratio could be anything.
    """
    by_system = {name: [row for row in rows if row["system"] == name] for name in SYSTEMS}
    found: list[Row] = []
    for name in SYSTEMS[:-1]:
        for row in by_system[name]:
            limit = row["ttft_p99"]
            theirs, beyond = _highest(by_system[name], limit)
            ours, open_end = _highest(by_system["linked"], limit)
            if theirs and ours and not (beyond and open_end):
                found.append(
                    {
                        "ttft_p99": limit,
                        "system": name,
                        "rate": theirs,
                        "linked_rate": ours,
                        "ratio": ours / theirs,
                        "bound": "at least" if open_end else "interpolated",
                    }
                )
    return found


def _highest(rows: Sequence[Mapping[str, Any]], limit: float) -> tuple[float, bool]:
    """The rate up to which p99 stays within `limit`, between two measured ones on the line through them; 0 when none
    does. And whether no higher rate was measured.
    """
    reached, before = 0.0, None
    for row in sorted(rows, key=lambda row: float(row["rate"])):
        if row["ttft_p99"] > limit:
            if before is None:
                return 0.0, False
            share = (limit - before["ttft_p99"]) / (row["ttft_p99"] - before["ttft_p99"])
            return reached + share * (row["rate"] - reached), False
        reached, before = float(row["rate"]), row
    return reached, bool(rows)
