"""Rates of an engine that has answered nothing yet."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ragcache.engine.torch import gauge as module
from ragcache.engine.torch.gauge import DEEP, MANY, PLACED, TURNS, gauge, gauged, of_pass
from ragcache.rates import Rates, Work
from ragcache.types import Span
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
    deep = min(DEEP, tiny.engine.spec.max_tokens)
    passes, placed = gauged(min(MANY, deep), deep), min(PLACED, deep)
    turns = len(rates.seen) // (len(passes) + 1)
    assert rates.seen == [*map(of_pass, passes), Work(placed=placed)] * turns
    assert 1 <= turns < TURNS
    for work in (Work.of_rows(0, len(passes[-1])), Work(placed=placed)):
        assert rates.seconds(work) < before.seconds(work) / 2  # the first guess is of a model a thousand times as large


def test_a_model_that_leaves_little_memory_is_gauged_in_less(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, room = list[int](), tiny.engine.buffer

    def short(positions: int, **how: Any) -> Any:
        asked.append(positions)
        if positions > 64:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return room(positions, **how)

    monkeypatch.setattr(module, "MANY", 64)
    monkeypatch.setattr(tiny.engine, "buffer", short)
    gauge(tiny.engine, rates := Watched())
    assert asked[-1] == 64 and len(asked) == 2
    assert max(work.rows for work in rates.seen) == 64


@pytest.mark.parametrize(
    ("floor", "row", "attended"),
    [(0.004, 7e-6, 1.2e-10), (0.008, 3.1e-5, 3e-10), (0.004, 7e-6, 1e-9), (0.05, 3e-4, 1e-9)],
    ids=["1b", "8b", "1b, slow attention", "70b"],
)
def test_a_long_prefill_is_not_taken_for_a_dear_one(floor: float, row: float, attended: float) -> None:
    """On a GPU a pass takes as long as its weights do to be read, until it has many rows."""

    def takes(work: Work) -> float:
        return max(floor * work.passes, row * work.rows + attended * work.attended)

    rates, passes = Rates(), gauged(8192, DEEP)
    for _ in range(TURNS):
        for work in map(of_pass, passes):
            rates.observe(work, takes(work))
        rates.observe(Work(placed=PLACED), 0.001)
    for start, end in ((0, 2048), (0, 4096), (0, 8192), (8192, 16_384)):
        work = of_pass(Span(start, end))
        assert 0.8 < rates.seconds(work) / takes(work) < 1.3
    for rows in (1, 256, 1024):
        work = of_pass(Span(4096 - rows, 4096))
        assert 0.8 < rates.seconds(work) / takes(work) < 2.0


def test_a_short_context_has_fewer_passes() -> None:
    assert gauged(64, 64) == [Span(0, 1), Span(0, 64)]
    assert gauged(1, 1) == [Span(0, 1)]
    assert gauged(512, 8192) == [Span(0, 1), Span(0, 512), Span(7680, 8192)]
