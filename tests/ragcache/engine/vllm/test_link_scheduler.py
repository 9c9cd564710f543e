from __future__ import annotations

import math

import numpy as np
import pytest

from ragcache.engine.vllm.budget import Budget
from ragcache.engine.vllm.jobs import LEAST_PROBE
from ragcache.engine.vllm.orders import Answers, Loaded
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.loader import SYSTEM as SYSTEM_PIECE
from ragcache.loader import PieceLoaded
from ragcache.report import COMPUTED
from ragcache.types import Segment
from tests.ragcache.engine.vllm.conftest import (
    DOCUMENT,
    FREE,
    PROMPT,
    QUESTION,
    SYSTEM,
    MakeScheduler,
    Worker,
    arrive,
    plan,
    run,
)
from tests.tiny import make_chunks

TOKENS = sum(len(segment) for segment in PROMPT)
ASKED_AT = TOKENS - len(QUESTION)
STARTS = {0: 7, 1: 32, 2: 52}


def test_a_prompt_is_loaded_repaired_and_finished(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker()
    assert arrive(scheduler, "a", "first_tokens:k=4") == TOKENS
    run(scheduler, [worker])
    assert worker.rows == [*range(32, 36), *range(52, 56)]
    assert worker.finished == ["a"]
    assert scheduler.resumes("a") == ASKED_AT
    told = scheduler.gone("a")
    assert told is not None
    report = told[KEY]
    assert (report["repaired"], report["reused"], report["computed"]) == (8, 55, 0)
    assert [chunk["tier"] for chunk in report["chunks"]] == ["ram"] * 3
    scheduler.check_integrity()


def test_nothing_to_repair_needs_no_pass(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker()
    arrive(scheduler, "a", "naive")
    assert run(scheduler, [worker]) == 2
    assert worker.computed == []
    assert worker.finished == ["a"]


@pytest.mark.parametrize("skip", [0, 7, 16, 40, ASKED_AT - 1])
def test_what_the_prefix_cache_holds_is_left_alone(make_scheduler: MakeScheduler, skip: int) -> None:
    scheduler, worker = make_scheduler(), Worker()
    arrive(scheduler, "a", "cci:ratio=1", skip=skip)
    run(scheduler, [worker])
    assert worker.rows == list(range(max(skip, 7), ASKED_AT))
    told = scheduler.gone("a")
    assert told is not None
    for chunk in told[KEY]["chunks"]:
        assert chunk["reused"] + chunk["repaired"] + chunk["computed"] == chunk["tokens"]


def test_a_prompt_that_is_cached_up_to_its_question_is_an_ordinary_one(make_scheduler: MakeScheduler) -> None:
    assert arrive(make_scheduler(), "a", "naive", skip=ASKED_AT) == 0


# -- budgets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "expected"), [(1000, 10), (5, 5), (0, 2)])
def test_slices_keep_to_what_the_step_leaves(make_scheduler: MakeScheduler, left: int, expected: int) -> None:
    """While others run at most `step_tokens`, and `least_tokens` even where nothing is left."""
    scheduler, worker = make_scheduler(step_tokens=10, least_tokens=2), Worker()
    arrive(scheduler, "a", "cci:ratio=1")
    run(scheduler, [worker], Budget(left, True, 1000))
    sizes = [len(rows.ids) for rows in worker.computed]
    assert set(sizes[:-1]) == {expected}
    assert worker.rows == list(range(7, ASKED_AT)), "ascending, each once"


@pytest.mark.parametrize("spans", [1, 2, 3])
def test_slices_keep_to_the_sequences_that_a_forward_takes(make_scheduler: MakeScheduler, spans: int) -> None:
    scheduler, worker = make_scheduler(), Worker()
    arrive(scheduler, "a", "random:ratio=0.5")
    run(scheduler, [worker], Budget(1000, False, spans))
    for rows in worker.computed:
        assert 1 + np.count_nonzero(np.diff(rows.positions) != 1) <= spans
    assert worker.rows == sorted(worker.rows)


def test_older_requests_come_first_and_share_a_forward(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker()
    for name in "abc":
        arrive(scheduler, name, "cci:ratio=1")
    run(scheduler, [worker], Budget(100, False, 1000))
    assert [steps for steps in worker.steps if steps] == [100, 63, 26], "b and most of c, a's tail, what c has left"
    assert worker.finished == list("abc")


@pytest.mark.parametrize(("prefill", "expected"), [(0, 40), (30, 10), (500, 5)])
def test_prompts_that_vllm_computes_count_too(make_scheduler: MakeScheduler, prefill: int, expected: int) -> None:
    scheduler, worker = make_scheduler(step_tokens=40, least_tokens=5), Worker()
    arrive(scheduler, "a", "cci:ratio=1")
    run(scheduler, [worker], Budget(1000, True, 1000, prefill))
    assert max(worker.steps) == expected


def test_a_probe_counts_for_the_time_that_it_takes(make_scheduler: MakeScheduler) -> None:
    """Its layers' weights are read however few its rows are."""
    scheduler, worker = make_scheduler(step_tokens=2 * LEAST_PROBE, least_tokens=1), Worker()
    for name in "abc":
        arrive(scheduler, name, "auto:ratio=0.2")
    asked: list[int] = []
    while not worker.finished:
        before = len(worker.probed)
        scheduler.answered(worker.obey(scheduler.step(Budget(1000, True, 1000), ["another"])))
        asked.append(len(worker.probed) - before)
    assert asked[:3] == [0, 2, 1]


# -- probes ---------------------------------------------------------------------------------------------------------


def test_a_probe_passes_through_the_question_alone(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker(bad={1})
    arrive(scheduler, "a", "auto:ratio=0.2,depth=0.3")
    run(scheduler, [worker])
    (rows,) = worker.probed
    assert list(rows.positions) == list(range(ASKED_AT, TOKENS)), "what is missing says nothing to it"
    assert set(range(32, 52)) <= set(worker.rows)
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["charged"] == pytest.approx(len(QUESTION) * 0.3)
    assert told[KEY]["incidents"] == ["it is bad"]


@pytest.mark.parametrize("ratio", [0.0, 0.2, 1.0])
def test_vllm_computes_the_question_behind_what_is_repaired(make_scheduler: MakeScheduler, ratio: float) -> None:
    """In its own step: a probe leaves nothing behind."""
    scheduler, worker = make_scheduler(step_tokens=10, least_tokens=2), Worker()
    arrive(scheduler, "a", f"auto:ratio={ratio},depth=0.3")
    run(scheduler, [worker], Budget(10, True, 1000))
    assert len(worker.probed) == (ratio > 0), "there is nothing to choose"
    assert len(worker.rows) == math.ceil(ratio * (ASKED_AT - len(SYSTEM)))
    assert max(worker.rows, default=0) < ASKED_AT
    assert len(worker.computed) == math.ceil(len(worker.rows) / 10)
    assert scheduler.resumes("a") == ASKED_AT
    assert scheduler.resumes("a") is None, "asked once"


def test_ranks_are_asked_together(make_scheduler: MakeScheduler) -> None:
    """A piece that one rank lacks is missing on all, and they all get the same rows."""
    scheduler, workers = make_scheduler(ranks=2), [Worker(), Worker(bad={0})]
    arrive(scheduler, "a", "auto")
    run(scheduler, workers)
    assert workers[0].computed == workers[1].computed
    assert set(range(7, 32)) <= set(workers[0].rows)


# -- what goes wrong ------------------------------------------------------------------------------------------------


def test_what_cannot_be_loaded_is_computed(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker(bad={SYSTEM_PIECE, 2})
    arrive(scheduler, "a", "naive")
    run(scheduler, [worker])
    assert worker.rows == [*range(7), *range(52, 70)]
    told = scheduler.gone("a")
    assert told is not None
    assert [chunk["tier"] for chunk in told[KEY]["chunks"]] == ["ram", "ram", COMPUTED]


def test_how_long_reading_may_take_is_the_workers_to_judge(make_scheduler: MakeScheduler) -> None:
    """Steps may take seconds, in which nothing was read yet: what comes late is used all the same."""
    now = 0.0
    scheduler, worker = make_scheduler(load_timeout_s=5.0, clock=lambda: now), Worker(slow={1})
    arrive(scheduler, "a", "naive")
    for now in (4.0, 50.0, 500.0):  # noqa: B007 - the clock reads it
        scheduler.answered(worker.obey(scheduler.step(FREE)))
    scheduler.answered(Answers(loaded=[Loaded("a", PieceLoaded(1, 0, "disk", 1))]))
    run(scheduler, [worker])
    assert worker.rows == []


@pytest.mark.parametrize("steps", range(4))
def test_an_aborted_request_is_finished_once_and_nothing_more(make_scheduler: MakeScheduler, steps: int) -> None:
    scheduler, worker = make_scheduler(step_tokens=10), Worker()
    arrive(scheduler, "a", "auto:ratio=1")
    arrive(scheduler, "b", "naive")
    for _ in range(steps):
        scheduler.answered(worker.obey(scheduler.step(Budget(1000, True, 1000))))
    scheduler.gone("a")
    run(scheduler, [worker])
    assert sorted(worker.finished) == ["a", "b"]
    scheduler.check_integrity()


def test_a_preempted_request_is_linked_again(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker()
    arrive(scheduler, "a", "naive")
    run(scheduler, [worker])
    scheduler.allocated("a", range(100), scheduler.matched("a", 0))
    run(scheduler, [worker])
    assert worker.finished == ["a", "a"]


def test_a_malformed_request_is_served_plainly_and_told(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    assert plan(scheduler, "a", (1, 2, 3), link_params(PROMPT, "naive")) is None
    assert scheduler.matched("a", 0) == 0
    told = scheduler.gone("a")
    assert told is not None
    assert "not linked" in told[KEY]["incidents"][0]
    assert scheduler.gone("a") is None


@pytest.mark.parametrize(("linker", "middle"), [("full", DOCUMENT[:2]), ("auto", make_chunks(9, seed=7))])
def test_with_nothing_to_reuse_it_is_an_ordinary_request(
    make_scheduler: MakeScheduler, linker: str, middle: list[Segment]
) -> None:
    scheduler = make_scheduler()
    assert arrive(scheduler, "a", linker, segments=[SYSTEM, *middle, QUESTION]) == 0
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["part"] == 1.0
