"""The last slice of a repair waits for the step in which vLLM computes the question: one forward does both."""

from __future__ import annotations

import pytest

from ragcache.engine.vllm.budget import Budget
from ragcache.loader import SYSTEM as SYSTEM_PIECE
from tests.ragcache.engine.vllm.conftest import FREE, PROMPT, QUESTION, MakeScheduler, Worker, arrive

ASKED_AT = sum(len(segment) for segment in PROMPT[:-1])


def test_the_last_slice_waits_for_the_question(make_scheduler: MakeScheduler) -> None:
    """vLLM is told to go on, and may take its time; then one forward does both."""
    scheduler, worker = make_scheduler(step_tokens=40), Worker()
    arrive(scheduler, "a", "cci:ratio=1")
    for _ in range(5):
        scheduler.answered(worker.obey(scheduler.step(Budget(1000, True, 1000), ["another"])))
    assert worker.finished == ["a"]
    assert worker.steps == [0, 40, 0, 0, 0]
    worker.obey(scheduler.step(Budget(1000, True, 1000), ["another", "a"]))
    assert worker.steps[-1] == 23
    assert worker.rows == list(range(7, ASKED_AT))
    scheduler.gone("a")
    scheduler.check_integrity()


@pytest.mark.parametrize(("most", "waits"), [(63 + len(QUESTION), True), (62 + len(QUESTION), False)])
def test_the_last_slice_waits_if_the_step_takes_it_and_the_question(
    make_scheduler: MakeScheduler, most: int, waits: bool
) -> None:
    scheduler, worker = make_scheduler(step_tokens=most), Worker()
    arrive(scheduler, "a", "cci:ratio=1")
    while not worker.finished:
        scheduler.answered(worker.obey(scheduler.step(Budget(1000, True, 1000), ["another"])))
    assert len(worker.rows) == (0 if waits else 63)


def test_nothing_waits_where_vllm_schedules_ahead(make_scheduler: MakeScheduler) -> None:
    """It would be told too late that what it goes on with is not right."""
    scheduler, worker = make_scheduler(step_tokens=100, ahead=True), Worker()
    arrive(scheduler, "a", "cci:ratio=1")
    while not worker.finished:
        scheduler.answered(worker.obey(scheduler.step(Budget(1000, True, 1000), ["another"])))
    assert worker.rows == list(range(7, ASKED_AT))


def test_what_others_may_share_does_not_wait(make_scheduler: MakeScheduler) -> None:
    """vLLM shows the KV of exact segments to everybody as soon as the request goes on."""
    scheduler, worker = make_scheduler(), Worker(bad={SYSTEM_PIECE})
    arrive(scheduler, "a", "naive")
    while not worker.finished:
        scheduler.answered(worker.obey(scheduler.step(FREE)))
    assert worker.rows == list(range(7))


def test_a_request_that_goes_before_its_last_slice_takes_it_along(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker()
    arrive(scheduler, "a", "cci:ratio=1")
    while not worker.finished:
        scheduler.answered(worker.obey(scheduler.step(FREE)))
    scheduler.gone("a")
    worker.obey(scheduler.step(FREE, ["a"]))
    assert worker.rows == []
    scheduler.check_integrity()
