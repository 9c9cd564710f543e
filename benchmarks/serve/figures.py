"""From what clients have seen to a row, and what one system answers at the wait that another one has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from benchmarks.load.arrivals import percentile
from benchmarks.output import Row
from benchmarks.serve import SERVE_SYSTEMS
from benchmarks.serve.child import ProcessUse, growth
from benchmarks.serve.clients import StreamedAnswer

MB = 1e6
HIDDEN = ("ccr", "prompt", "rss_mb", "fds")  # of the rows' table, but for ccr where there are several
*OTHERS, OURS = SERVE_SYSTEMS


@dataclass
class CaseFigures:
    """Of one system under so many clients, all rounds together."""

    answers: list[StreamedAnswer] = field(default_factory=list)
    uses: list[ProcessUse] = field(default_factory=list)
    seconds: float = 0.0  # until the last answer of each round

    def add(self, answers: Sequence[StreamedAnswer]) -> None:
        self.answers += answers
        self.seconds += max((one.end for one in answers), default=0.0)

    @property
    def failures(self) -> Mapping[str, int]:
        """How often each of the messages came."""
        return Counter(one.error for one in self.answers if one.error)

    def row(self, system: str, clients: int, ccr: float) -> Row:
        answered = [one for one in self.answers if not one.error]
        gaps = [*chain.from_iterable(one.gaps for one in answered)]
        rss, fds = [one.rss / MB for one in self.uses], [float(one.fds) for one in self.uses]
        prompt = sum(one.prompt for one in answered)
        return {
            "system": system,
            "clients": clients,
            "ccr": ccr,
            "requests": len(self.answers),
            "errors": len(self.answers) - len(answered),
            "rps": len(answered) / self.seconds if self.seconds else 0.0,
            **_percentiles("ttft", [one.ttft for one in answered]),
            "itl_p99": percentile(gaps, 99) if gaps else None,
            **_percentiles("e2e", [one.e2e for one in answered]),
            "prompt": prompt / len(answered) if answered else None,
            "cached": sum(one.cached for one in answered) / prompt if prompt else None,
            "rss_mb": rss[-1] if rss else None,
            "rss_growth_mb": growth(rss),
            "fds": fds[-1] if fds else None,
            "fds_growth": growth(fds),
        }


def _percentiles(name: str, values: Sequence[float]) -> Row:
    return {f"{name}_p{share}": percentile(values, share) if values else None for share in (50, 99)}


def at_equal_wait(rows: Sequence[Row]) -> list[Row]:
    """For each p99 of the first token that another system has: what it answers per second, and what ours does within
    that. Left out where ours is never so soon.
    """
    found: list[Row] = []
    for row in (row for row in rows if row["system"] in OTHERS):
        ours = [one for one in rows if one["system"] == OURS and one["ccr"] == row["ccr"]]
        if row["ttft_p99"] is None or not row["rps"] or any(one["ttft_p99"] is None for one in ours):
            continue
        answered, more = _within(ours, _number(row["ttft_p99"]))
        if answered:
            told = {name: row[name] for name in ("system", "clients", "ccr", "ttft_p99", "rps")}
            ratio = {"linked_rps": answered, "ratio": answered / _number(row["rps"])}
            found.append(told | ratio | {"bound": "at least" if more else "interpolated"})
    return found


def _within(rows: Sequence[Row], limit: float) -> tuple[float, bool]:
    """The most per second with a p99 within `limit`, between two numbers of clients on the line through them; 0 where
    there is none. And whether more clients might have had more.
    """
    ordered = sorted(rows, key=lambda row: _number(row["clients"]))
    most = max((_number(row["rps"]) for row in ordered if _number(row["ttft_p99"]) <= limit), default=0.0)
    for before, after in pairwise(ordered):
        low, high = _number(before["ttft_p99"]), _number(after["ttft_p99"])
        if low <= limit < high:
            share = (limit - low) / (high - low)
            most = max(most, _number(before["rps"]) + share * (_number(after["rps"]) - _number(before["rps"])))
    return most, bool(ordered) and _number(ordered[-1]["ttft_p99"]) <= limit


def _number(value: Any) -> float:
    assert isinstance(value, int | float), value
    return float(value)
