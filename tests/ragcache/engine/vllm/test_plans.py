from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ragcache.engine.vllm.block_names import LinkName
from ragcache.engine.vllm.budget import LinkSettings
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.orders import Answers, Failed
from ragcache.engine.vllm.plans import Stepping
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.policy import Rates, Work
from ragcache.store.base import KVStore
from ragcache.store.findings import Flaw
from ragcache.store.ram import RamTier
from ragcache.types import VariantInfo
from tests.ragcache.engine.vllm.conftest import (
    DOCUMENT,
    FREE,
    LAYERS,
    PROMPT,
    SYSTEM,
    TOKEN_BYTES,
    MakeScheduler,
    NamesDouble,
    Worker,
    arrive,
    plan,
    run,
)
from tests.tiny import Tiny, make_chunks
from tests.vllm_state import is_waiting

IDS = [token for segment in PROMPT for token in segment.ids]


class SlowFolder(RamTier):
    """Looking something up takes until `gate` opens."""

    def __init__(self, store: KVStore):
        super().__init__(None)
        self._store = store
        self.gate, self.asked = threading.Event(), threading.Semaphore(0)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        self.asked.release()
        self.gate.wait()
        return list(self._store.variants(family, flaws))


class SlowPlacing(Rates):
    """By which nothing takes longer than to place what was cached."""

    def seconds(self, work: Work, *, fresh: bool = True) -> float:
        return work.placed + 1e-6 * work.rows


@pytest.fixture
def folder(stored: KVStore) -> Iterator[SlowFolder]:
    made = SlowFolder(stored)
    yield made
    made.gate.set()


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def scheduler(tiny: Tiny, folder: SlowFolder, clock: list[float]) -> Iterator[LinkScheduler]:
    name = tiny.engine.spec.fingerprint
    made = LinkScheduler(
        name,
        folder,
        LinkSettings(link_when="always"),
        ranks=1,
        layers=LAYERS,
        token_bytes=TOKEN_BYTES,
        steps=Stepping(),
        clock=lambda: clock[0],
    )
    yield made
    made.close()


def asked(scheduler: LinkScheduler, name: str) -> list[LinkName]:
    names = NamesDouble()
    scheduler.arrived(name, IDS, link_params(PROMPT, "naive"), names)
    return names.links


def test_steps_go_on_while_a_plan_waits_for_the_disk(scheduler: LinkScheduler, folder: SlowFolder) -> None:
    names = asked(scheduler, "a")
    scheduler.step(FREE)
    assert scheduler.matched("a", 0) is None
    assert names == []
    assert is_waiting(scheduler), "or the engine would sleep"
    folder.gate.set()
    scheduler._plans.wait(60)
    scheduler.step(FREE)
    assert [name.exact for name in names] == [len(SYSTEM)], "told before vLLM looks up its own cache for it"
    assert scheduler.matched("a", 0) == len(IDS)
    scheduler.gone("a")
    scheduler.check_integrity()


def test_a_folder_that_does_not_answer_costs_the_link(
    scheduler: LinkScheduler, folder: SlowFolder, clock: list[float]
) -> None:
    for name in "ab":
        assert asked(scheduler, name) == []
    for _ in "ab":  # each by a thread of its own
        assert folder.asked.acquire(timeout=60)
    clock[0] = 5.1
    scheduler.step(FREE)
    for name in "abc":  # the last one comes when it is known not to answer
        if name == "c":
            asked(scheduler, name)
        assert scheduler.matched(name, 0) == 0
        told = scheduler.gone(name)
        assert told is not None
        assert ("not answered" if name == "c" else "not searched in time") in told[KEY]["incidents"][0]
    assert scheduler.outcomes.totals.take() == {"requests/failed": 3}


def test_a_request_that_is_gone_before_its_plan_is_there(scheduler: LinkScheduler, folder: SlowFolder) -> None:
    names = asked(scheduler, "a")
    assert scheduler.gone("a") is None
    folder.gate.set()
    assert not is_waiting(scheduler)
    scheduler.step(FREE)
    assert names == []
    scheduler.check_integrity()


def test_a_linker_that_computes_all_asks_no_disk(scheduler: LinkScheduler) -> None:
    scheduler.arrived("a", IDS, link_params(PROMPT, "full"), NamesDouble())
    assert scheduler.matched("a", 0) == 0
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["part"] == 1.0


@pytest.mark.parametrize("when", ["loading", "done"])
def test_what_breaks_on_a_worker_is_told_to_vllm(make_scheduler: MakeScheduler, when: str) -> None:
    scheduler, worker = make_scheduler(), Worker()
    arrive(scheduler, "a", "first_tokens:k=4")
    arrive(scheduler, "b", "naive", segments=[SYSTEM, DOCUMENT[1], PROMPT[-1]])
    if when == "loading":
        scheduler.step(FREE)
    else:
        run(scheduler, [worker])
        assert worker.finished == ["a", "b"]
    for _ in range(2):  # once per rank
        scheduler.answered(Answers(failed=[Failed("a", "out of memory")]))
    orders = scheduler.step(FREE)
    assert (orders.finish, orders.failed) == ((("a",),) * 2 if when == "loading" else ((), ()))
    assert scheduler.resumes("a") is None
    assert scheduler.matched("a", 0) == 0, "vLLM asks again"
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["incidents"] == ["not linked: out of memory"]
    assert scheduler.outcomes.totals.take() == {"requests/failed": 1}
    scheduler.check_integrity()


def test_what_is_measured_is_linked_however_long_that_takes(make_scheduler: MakeScheduler) -> None:
    for always in (False, True):
        scheduler, worker = make_scheduler(link_when="sooner"), Worker()
        scheduler.pace.rates = SlowPlacing()
        scheduler.arrived("a", IDS, link_params(PROMPT, "naive", always=always), NamesDouble())
        scheduler._plans.wait(60)
        scheduler.step(FREE)
        assert scheduler.matched("a", 0) == (len(IDS) if always else 0)
        if always:
            scheduler.allocated("a", range(len(IDS)), len(IDS))
            run(scheduler, [worker])
            report = (scheduler.gone("a") or {})[KEY]
            assert report["declined"] == 0 and report["reused"] > 0


def test_when_a_prompt_comes_is_told_by_what_the_prefix_cache_has_until_it_runs(make_scheduler: MakeScheduler) -> None:
    """Vllm may take its blocks back later, and ask anew: its first token has come by then."""
    scheduler, strangers = make_scheduler(link_when="sooner"), [SYSTEM, *make_chunks(30, 30, seed=7), PROMPT[-1]]
    plan(scheduler, "a", [token for one in strangers for token in one.ids], link_params(strangers, "naive"))

    def planned(computed: int) -> float:
        assert scheduler.matched("a", computed) == 0
        told = scheduler.outcomes.reports["a"].planned_s
        assert told is not None
        return told

    whole, half = planned(0), planned(len(SYSTEM) + 30)
    assert half < 0.8 * whole
    scheduler.runs("a")
    assert planned(len(SYSTEM) + 50) == half
    scheduler.gone("a")
    assert not scheduler._ran
