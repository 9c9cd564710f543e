"""What an engine's steps take decides how much of a link one takes, and whether there is one."""

from __future__ import annotations

import pytest

from ragcache.engine.vllm.budget import Budget
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.orders import Answers, Measured, Timed
from ragcache.engine.vllm.plans import AMID
from ragcache.engine.vllm.requests import link_params
from ragcache.linking import make_linker
from ragcache.rates import Rates, Work
from tests.ragcache.engine.vllm.conftest import PROMPT, MakeScheduler, NamesDouble, Worker, arrive, plan, run

IDS = [token for segment in PROMPT for token in segment.ids]
DECODES = Work(rows=8, attended=8 * 500)
BUSY = Budget(1000, True, 1000, work=DECODES)


class Told(Rates):
    """By which work takes what it is told to."""

    def __init__(self, **each: float):
        super().__init__()
        self._each = each

    def seconds(self, work: Work, *, fresh: bool = True) -> float:
        return sum(cost * float(getattr(work, name)) for name, cost in self._each.items())


def teach(scheduler: LinkScheduler, pass_s: float, row_s: float = 1e-4, placed_s: float = 1e-7) -> None:
    """Until nothing of the first guess is left."""
    for _ in range(200):
        told = [(Work(passes=1, rows=rows, attended=rows), pass_s + rows * row_s) for rows in (1, 64, 512)]
        told += [(Work(rows=1, attended=10 * AMID, passes=1), pass_s + row_s), (Work(placed=256), 256 * placed_s)]
        scheduler.pace.measured(Measured(work, seconds) for work, seconds in told)


@pytest.mark.parametrize(("pass_s", "least", "most"), [(0.002, 16, 22), (0.006, 52, 63), (0.05, 63, 63)])
def test_beside_others_a_step_takes_what_costs_as_much_as_a_pass(
    make_scheduler: MakeScheduler, pass_s: float, least: int, most: int
) -> None:
    """63 tokens in all are to be computed."""
    scheduler, worker = make_scheduler(), Worker()
    teach(scheduler, pass_s)
    arrive(scheduler, "a", "cci:ratio=1")
    run(scheduler, [worker], BUSY)
    assert least <= max(worker.steps) <= most
    assert len(worker.rows) == 63


def test_where_rows_cost_nothing_a_step_takes_a_whole_pass(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    scheduler.pace.rates = Told(passes=1.0)
    assert scheduler.pace.forward(Budget(10_000, True, 1000)).tokens == 2048


def test_what_others_wait_for_in_slices_counts_against_a_link(make_scheduler: MakeScheduler) -> None:
    """Each slice is a step in which others decode; a plain prefill is one."""
    linked = []
    for step_tokens in (2, 1000):
        scheduler = make_scheduler(link_when="sooner", step_tokens=step_tokens, least_tokens=1)
        teach(scheduler, 0.002, row_s=1e-3)
        scheduler.step(BUSY)  # others decode
        for _ in range(30):
            scheduler.pace.rates.observe_link(make_linker("cci:ratio=0.3").choosing, 63, 19)
        plan(scheduler, "a", IDS, link_params(PROMPT, "cci:ratio=0.3"))
        linked.append(bool(scheduler.matched("a", 0)))
    assert linked == [False, True]


def test_what_is_repaired_apart_takes_passes_of_its_own(make_scheduler: MakeScheduler) -> None:
    """On a GPU; elsewhere it joins a forward of vLLM's."""
    asked = []
    for gpu in (False, True):
        scheduler, worker = make_scheduler(gpu=gpu), Worker()
        arrive(scheduler, "a", "cci:ratio=1")
        while not worker.finished:
            orders = scheduler.step(BUSY)
            asked += [(gpu, orders.work.passes)] if orders.compute else []
            scheduler.answered(worker.obey(orders))
    assert set(asked) == {(False, 1.0), (True, 2.0)}


def test_passes_of_its_own_are_foretold(make_scheduler: MakeScheduler) -> None:
    planned = []
    for gpu in (False, True):
        scheduler = make_scheduler(gpu=gpu, link_when="sooner")
        scheduler.answered(Answers())
        scheduler.pace.rates = Told(passes=1.0, rows=10.0)
        plan(scheduler, "a", IDS, link_params(PROMPT, "cci:ratio=0.3"))
        scheduler.step(Budget(1000, False, 1000))
        assert scheduler.matched("a", 0)
        planned.append(scheduler._asked["a"].plan.planned_s)  # type: ignore[union-attr]
    assert planned[1] - planned[0] == pytest.approx(1.0)


def test_the_first_prompts_of_a_gpu_are_judged_by_what_was_measured_before(make_scheduler: MakeScheduler) -> None:
    """That comes with the first answers: by a first guess all would be linked."""
    scheduler = make_scheduler(gpu=True, link_when="sooner")
    names = NamesDouble()
    scheduler.arrived("a", IDS, link_params(PROMPT, "naive"), names)
    assert scheduler.matched("a", 0) is None, "its plan waits"
    passes = [Measured(Work.of_rows(0, rows) + Work(passes=1), 0.004 + rows * 8e-6) for rows in (1, 256, 2048)]
    scheduler.answered(Answers(measured=[*passes, Measured(Work(placed=256), 0.03)] * 40))
    scheduler._plans.wait(60)
    scheduler.step(Budget(1000, False, 1000))
    assert scheduler.matched("a", 0) == 0
    assert not names.links


def test_what_launching_took_is_not_what_placing_takes(make_scheduler: MakeScheduler) -> None:
    placing, learnt = Work(placed=1000), []
    for gpu in (False, True):
        scheduler, worker = make_scheduler(gpu=gpu), Worker()
        teach(scheduler, 0.01, placed_s=1e-3)
        before = scheduler.pace.rates.seconds(placing)
        for name in map(str, range(20)):
            arrive(scheduler, name, "naive")
            scheduler.answered(Answers(timed=[Timed(name, "place", 1e-3)]))
            run(scheduler, [worker])
        learnt.append(scheduler.pace.rates.seconds(placing) < before)
    assert learnt == [True, False]


def test_what_is_computed_whole_waits_for_nothing(
    make_scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is planned on the engine's own thread, which would wait for itself."""
    scheduler, waited = make_scheduler(gpu=True, link_when="sooner"), list[float]()
    monkeypatch.setattr(scheduler.pace, "hear", waited.append)
    scheduler.arrived("a", IDS, link_params(PROMPT, "full"), NamesDouble())
    assert waited == []
    assert scheduler.matched("a", 0) == 0


def test_no_number_of_rows_divides_by_nothing(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(link_when="sooner", step_tokens=0, least_tokens=0)
    scheduler.step(BUSY)
    plan(scheduler, "a", IDS, link_params(PROMPT, "cci:ratio=0.3"))
    scheduler.matched("a", 0)
    assert "a" not in scheduler.outcomes.refusals
