"""The load benchmark but for vLLM: what is asked, and what becomes of the answers' times."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from benchmarks.load import LoadBenchOptions, parse_loads
from benchmarks.load.clients import Ask, Stream
from benchmarks.load.schedule import HIDDEN, Counted, LoadRequest, Schedule, summarise, sustained
from ragcache.errors import ConfigError


def options(**changed: Any) -> LoadBenchOptions:
    chosen: dict[str, Any] = {
        "systems": ("stock", "prefix", "linked"), "loads": (0.5, 2.0), "seconds": 0.2, "burst": 4, "chunks": 3,
        "chunk_tokens": 20, "answer_tokens": 4, "population": 9, "zipf": 1.0, "linker": "auto", "context": "document",
        "seed": 0,
    }  # fmt: skip
    return LoadBenchOptions(**{**chosen, **changed})


class Server:
    """Answers at once, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[LoadRequest] = []

    def __call__(self, request: LoadRequest, counted: Counted) -> Ask:
        self.asked.append(request)
        return partial(self._answer, counted)

    def _answer(self, counted: Counted) -> Iterator[int]:
        yield from (1, 1, 2)
        counted.part = 0.25


def test_a_case_has_the_row_that_was_asked_for() -> None:
    server = Server()
    row = Schedule(options(), 9).case("linked", server, 100.0, 0.5)
    assert set(HIDDEN) < set(row)
    assert (row["system"], row["load"], row["rate"], row["part"]) == ("linked", 0.5, 50.0, 0.25)
    assert row["n"] == len(server.asked) > 1
    assert all(len(set(request.chunks)) == 3 for request in server.asked)


def test_every_system_is_asked_the_same_and_every_case_something_else() -> None:
    load, servers = Schedule(options(), 9), [Server() for _ in range(4)]
    for server, rate in zip(servers, (0.5, 0.5, 2.0), strict=False):
        load.case("stock", server, 100.0, rate)
    load.burst(servers[3], 0, "warm-up")
    first, second, other, warm = (server.asked[:3] for server in servers)
    assert first == second
    assert first != other
    assert warm not in (first, other), "or a prefix cache would know the first case already"
    assert len(servers[3].asked) == 4


def test_a_burst_tells_the_rate() -> None:
    assert Schedule(options(), 9).burst(Server(), 0, "saturation") > 4, "four requests, well below a second"


def test_rows() -> None:
    streams = [Stream(0.0, (1.0, 1.1, 1.3)), Stream(2.0, (2.5, 2.6, 4.0))]
    row = summarise("stock", 0.5, 0.7, streams, [Counted(1.0), Counted(0.5)])
    assert row == {
        "system": "stock",
        "load": 0.5,
        "rate": 0.7,
        "throughput": 0.5,
        "ttft_p50": 0.75,
        "ttft_p99": pytest.approx(0.995),
        "itl_p50": pytest.approx(0.15),
        "itl_p99": pytest.approx(1.4 - 0.03 * 1.2),
        "part": 0.75,
        "n": 2,
    }
    assert summarise("stock", 1, 1, [Stream(0.0, (1.0,))], [Counted()])["itl_p99"] is None, "answers of one token"


def row(system: str, rate: float, ttft_p99: float) -> dict[str, Any]:
    return {"system": system, "rate": rate, "ttft_p99": ttft_p99}


def test_the_rate_that_is_sustained_lies_between_two_that_were_measured() -> None:
    rows = [row("prefix", 1.0, 2.0), row("linked", 2.0, 1.0), row("linked", 4.0, 5.0), row("linked", 8.0, 9.0)]
    (found,) = sustained(rows)
    assert (found["system"], found["ttft_p99"], found["rate"]) == ("prefix", 2.0, 1.0)
    assert (found["linked_rate"], found["ratio"], found["bound"]) == (2.5, 2.5, "interpolated")


def test_a_rate_beyond_all_that_were_measured_is_a_lower_bound() -> None:
    found = sustained(
        [row("stock", 1.0, 2.0), row("stock", 2.0, 9.0), row("linked", 1.0, 0.5), row("linked", 2.0, 1.0)]
    )
    told = [(one["rate"], one["linked_rate"], one["bound"]) for one in found]
    assert told == [(1, 2, "at least")], "nobody knows at which rates either comes to 9 s"


def test_there_is_no_ratio_where_ours_is_never_so_soon() -> None:
    assert sustained([row("prefix", 1.0, 2.0), row("linked", 1.0, 3.0)]) == []
    assert sustained([row("prefix", 1.0, 2.0)]) == []


def test_the_lists_of_the_command_line() -> None:
    assert parse_loads("2,0.5,1", "loads") == (0.5, 1.0, 2.0)
    for text in ("", "a", "0,1", "nan", "inf"):
        with pytest.raises(ConfigError, match="--loads"):
            parse_loads(text, "loads")
