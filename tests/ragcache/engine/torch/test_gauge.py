"""Rates of an engine that has answered nothing yet."""

from __future__ import annotations

from ragcache.engine.torch.gauge import GAUGED, TURNS, gauge
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
    fitting = [count for count in GAUGED if count <= tiny.engine.spec.max_tokens]
    turns = len(rates.seen) // len(fitting)
    assert [(work.passes, work.rows) for work in rates.seen] == [(1, count) for count in fitting] * turns
    assert 1 <= turns < TURNS
    many = Work.of_rows(0, fitting[-1])
    assert rates.seconds(many) < before.seconds(many) / 2  # the first guess is of a model a thousand times as large
