"""Rates of an engine that has answered nothing yet."""

from __future__ import annotations

from ragcache.engine.torch.gauge import GAUGED, PLACED, TURNS, gauge
from ragcache.rates import Rates, Work
from tests.tiny import Tiny


class Watched(Rates):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Work] = []

    def observe(self, work: Work, seconds: float) -> None:
        assert seconds > 0
        self.seen.append(work)
        super().observe(work, seconds)


def test_passes_of_few_and_of_many_rows_are_measured(tiny: Tiny) -> None:
    rates, before = Watched(), Rates()
    gauge(tiny.engine, rates)
    rows = [count for count in GAUGED if count <= tiny.engine.spec.max_tokens]
    placed = min(PLACED, rows[-1])
    turns = len(rates.seen) // (len(rows) + 1)
    once = [(1, count, 0) for count in rows] + [(0, 0, placed)]
    assert [(work.passes, work.rows, work.placed) for work in rates.seen] == once * turns
    assert 1 <= turns < TURNS
    for work in (Work.of_rows(0, rows[-1]), Work(placed=placed)):
        assert rates.seconds(work) < before.seconds(work) / 2  # the first guess is of a model a thousand times as large
