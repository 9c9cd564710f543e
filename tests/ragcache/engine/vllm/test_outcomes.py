from __future__ import annotations

from ragcache.engine.vllm.outcomes import FAMILIES, UNKNOWN, Outcomes
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.report import Report
from tests.ragcache.engine.vllm.conftest import (
    DOCUMENT,
    QUESTION,
    SYSTEM,
    MakeScheduler,
    Worker,
    arrive,
    plan,
    run,
)
from tests.tiny import make_chunks


def test_every_request_is_counted_once(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    for name in "ab":
        arrive(scheduler, name, "first_tokens:k=4")
        run(scheduler, [Worker(bad={2})])
        scheduler.gone(name)
    arrive(scheduler, "c", "naive", segments=[SYSTEM, *make_chunks(9, seed=8), QUESTION])
    scheduler.gone("c")
    plan(scheduler, "d", (1,), link_params([SYSTEM, DOCUMENT[0], QUESTION], "naive"))
    scheduler.gone("d")
    plan(scheduler, "e", (1,), {"not": KEY})
    assert scheduler.gone("e") is None
    totals = scheduler.outcomes.totals.take()
    assert totals.pop("seconds/parked") > 0
    assert totals == {
        "requests/linked": 2, "requests/plain": 1, "requests/refused": 1,
        "chunks/ram": 4, "chunks/computed": 3,
        "tokens/reused": 82, "tokens/repaired": 8, "tokens/computed": 36 + 16,
        "incidents/all": 2,
    }  # fmt: skip
    told_elsewhere = {"seconds", "own"}
    assert {name.partition("/")[0] for name in totals} | told_elsewhere == set(FAMILIES)


def test_a_report_is_told_once_whether_its_request_runs_or_not() -> None:
    outcomes, name, unknown = Outcomes(), "0" * 32, {KEY: {"incidents": [UNKNOWN]}}
    for gone_first in (True, False):
        outcomes.keep("answer", name)
        outcomes.ask("too early", name)
        assert outcomes.gone("too early") == unknown
        outcomes.reports["answer"] = Report("naive", 9, 8, 1)
        if gone_first:
            outcomes.gone("answer")
        outcomes.ask("in time", name)
        told = outcomes.gone("in time")
        assert told is not None
        assert told[KEY]["prompt_tokens"] == 9
        outcomes.gone("answer")
        outcomes.ask("again", name)
        assert outcomes.gone("again") == unknown
