from __future__ import annotations

from ragcache.engine.vllm.outcomes import FAMILIES
from ragcache.engine.vllm.requests import KEY, link_params
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
    assert {name.partition("/")[0] for name in totals} | {"seconds"} == set(FAMILIES)
