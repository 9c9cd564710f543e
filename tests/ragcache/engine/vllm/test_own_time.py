"""What our own code takes of vLLM's threads."""

from __future__ import annotations

import pytest

from ragcache.engine.vllm.own_time import LEAST_S, OwnTime, Steps, counted


class Side:
    """Of a connector. Its hook takes two seconds, the first of which something else takes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.own = OwnTime(lambda: self.now)

    @counted
    def hook(self, fails: bool = False) -> str:
        self.own.idle(self.wait)
        self.wait()
        if fails:
            raise ValueError
        return "done"

    def wait(self) -> None:
        self.now += 1.0


def test_it_is_all_but_what_is_not_ours() -> None:
    side = Side()
    assert side.hook() == "done"
    assert side.own.take() == 1.0
    assert side.own.take() == 0.0


def test_what_breaks_counts_too() -> None:
    side = Side()
    with pytest.raises(ValueError):
        side.hook(fails=True)
    assert side.own.take() == 1.0


def test_little_waits_for_more() -> None:
    side = Side()
    for _ in range(2):
        side.now += LEAST_S
        side.own.counts(side.now - 0.75 * LEAST_S)
    assert side.own.take() == pytest.approx(1.5 * LEAST_S)
    side.now += 1.0
    side.own.counts(side.now - 0.5 * LEAST_S)
    assert side.own.take() == 0.0


def test_steps_are_told_without_what_lies_between() -> None:
    now = [0.0]
    steps = Steps(lambda: now[0])
    for begins, ends in ((10.0, 12.0), (20.0, 23.0)):
        now[0] = begins
        steps.ordered(goes_on=False)
        now[0] = ends
        steps.ended()
    assert steps.take() == 5.0
    assert steps.take() == 0.0


def test_a_step_begins_where_somebody_asked_or_the_one_before_ended() -> None:
    now = [1.0]
    steps = Steps(lambda: now[0])
    steps.asked()  # and gone
    now[0] = 7.0
    steps.asked()
    now[0] = 8.0
    steps.ordered(goes_on=False)
    now[0] = 9.0
    steps.asked()
    now[0] = 10.0
    steps.ended()
    now[0] = 11.0
    steps.ordered(goes_on=False)
    now[0] = 12.0
    steps.ended()
    now[0] = 13.0
    steps.ordered(goes_on=True)
    now[0] = 14.0
    steps.ended()
    assert steps.take() == 7.0


def test_steps_that_overlap_count_once() -> None:
    """vLLM may order one before the outcome of the last."""
    now = [0.0]
    steps = Steps(lambda: now[0])
    steps.ordered(goes_on=False)
    for moment in (1.0, 2.0, 3.0):
        now[0] = moment
        steps.ordered(goes_on=False)
        now[0] = moment + 0.5
        steps.ended()
    now[0] = 4.0
    steps.ended()
    steps.ended()  # of what nobody had ordered
    assert steps.take() == 4.0
