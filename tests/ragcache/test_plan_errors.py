"""What first tokens take beside their work is learnt from those that came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ragcache.plan_errors import DOUBT, FEWEST, PLANS, PlanErrors
from ragcache.rates import Rates, Work


def after(firsts: Sequence[tuple[float, float]]) -> PlanErrors:
    """Of the seconds that the work was to take, and that the first token took."""
    errors = PlanErrors()
    for work, seconds in firsts:
        errors.observe(work + errors.beside, seconds)
    return errors


def test_what_all_first_tokens_take_beside_their_work_is_foretold_in_the_end() -> None:
    errors = after([(work, work + 0.03) for work in (0.1, 0.3, 0.2)] * 30)
    assert errors.beside == pytest.approx(0.03, rel=0.2)
    assert errors.error is not None and errors.error < 0.05
    assert after([(0.2, 0.23)] * 3).beside < 0.015, "a few prove little"


def test_a_first_token_that_waited_long_is_one_of_many() -> None:
    steady = [(0.2, 0.22)] * (PLANS - 1)
    assert after([*steady, (0.2, 30.0)]).beside == pytest.approx(after(steady).beside, rel=0.05)


def test_too_long_a_plan_is_no_time_beside_it() -> None:
    """It is the rates that are wrong then, and they learn."""
    assert after([(0.3, 0.2)] * 20).beside == 0.0


@given(some.lists(some.tuples(some.floats(-1, 1e6), some.floats(-1, 1e6)), max_size=90))
def test_the_time_beside_is_within_what_was_seen(firsts: list[tuple[float, float]]) -> None:
    errors = PlanErrors()
    for planned, seconds in firsts:
        errors.observe(planned, seconds)
    assert 0.0 <= errors.beside <= 1e6 * (1 + len(firsts))
    assert errors.error is None or errors.error >= 0.0


@pytest.mark.parametrize("told", [None, "0.1", True, -1.0, float("nan"), float("inf"), 1e9, [0.1]])
def test_what_the_last_run_left_may_be_nonsense(told: Any) -> None:
    assert Rates({"beside": told}).first_token(0.5) == 0.5


def test_the_next_run_begins_with_what_this_one_learnt() -> None:
    rates = Rates()
    rates.observe(Work.of_rows(0, 500), 0.2)
    for _ in range(FEWEST):
        rates.observe_plan(rates.first_token(0.2), 0.25)
    assert 0.2 < rates.first_token(0.2) <= 0.25
    began = Rates(rates.told())
    assert began.first_token(0.2) == pytest.approx(rates.first_token(0.2))
    assert began.plan_error is None
    for _ in range(DOUBT):
        began.observe_plan(began.first_token(0.2), 0.2)
    assert 0.2 < began.first_token(0.2) < rates.first_token(0.2), "and goes on learning"
