"""A tier that is slower than computing serves those who wait in the queue: it is read while others run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ragcache.cache import ChunkCache
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.engine.vllm.waiting import LAST, QueueTurns
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.store.base import KVStore
from tests.loaders import known_rates
from tests.ragcache.engine.vllm.conftest import QUESTION, SYSTEM, MakeScheduler, NamesDouble, Worker, plan, run
from tests.tiny import Tiny, make_chunks

DOCUMENT = make_chunks(60, 70, 80)  # beside which what System's KV saves is little
PROMPT = [SYSTEM, *DOCUMENT, QUESTION]
IDS = [token for segment in PROMPT for token in segment.ids]


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def turns(now: list[float]) -> QueueTurns:
    return QueueTurns(lambda: now[0])


def test_a_turn_is_the_time_for_which_a_request_stood_first(turns: QueueTurns, now: list[float]) -> None:
    """Of those behind it nothing is read yet."""
    turns.came("a")
    now[0] += 2
    turns.came("b")
    now[0] += 3
    turns.taken("a")
    now[0] += 4
    turns.taken("a")
    turns.taken("b")
    assert (turns.took("a"), turns.took("b"), turns.took("c")) == (5, 4, 0)
    turns.gone("a")
    assert turns.took("a") == 0


def test_the_next_turn_is_taken_to_be_as_short_as_any_of_the_last(turns: QueueTurns, now: list[float]) -> None:
    assert turns.expected == 0
    for number in range(LAST):
        turns.came(f"{number}")
        now[0] += 5 - number
        turns.taken(f"{number}")
    assert turns.expected == 5 - (LAST - 1)
    turns.came("alone")
    turns.taken("alone")
    assert turns.expected == 0


@given(some.lists(some.tuples(some.sampled_from(["came", "taken", "gone"]), some.integers(0, 5), some.floats(0, 9))))
def test_turns_are_within_the_time_that_passed(told: list[tuple[str, int, float]]) -> None:
    now = [0.0]
    turns = QueueTurns(lambda: now[0])
    for name, number, seconds in told:
        now[0] += seconds
        getattr(turns, name)(str(number))
        assert 0.0 <= turns.took(str(number)) <= now[0]
    assert 0.0 <= turns.expected <= now[0]
    for number in range(6):
        turns.gone(str(number))
    assert not turns._came and not turns._took


@pytest.fixture
def stored(tiny: Tiny, tmp_path: Path) -> KVStore:
    """On a disk."""
    store = open_store(tmp_path, 0, None, "raw")
    list(ChunkCache(tiny.engine, store, "naive", context_chunks=len(DOCUMENT)).ingest(SYSTEM, DOCUMENT))
    return store


@pytest.fixture
def scheduler(make_scheduler: MakeScheduler, now: list[float]) -> LinkScheduler:
    """By whose rates all of a prompt is computed in seconds, and each chunk read in minutes."""
    made = make_scheduler(link_when="sooner", clock=lambda: now[0], load_timeout_s=1e6)
    made.pace.rates = known_rates(0.01, 1e-9)
    for _ in range(20):
        made.pace.rates.observe_load("disk", 20_000, 1000.0)
    return made


def waited(scheduler: LinkScheduler, now: list[float], seconds: float, times: int = LAST) -> None:
    """So many requests stood first in the queue for so long."""
    for number in range(times):
        scheduler.arrived(f"other-{number}", (1, 2, 3), None, NamesDouble())
        now[0] += seconds
        assert scheduler.matched(f"other-{number}", 0) == 0
        scheduler.gone(f"other-{number}")


def linked(scheduler: LinkScheduler, now: list[float], seconds: float) -> list[str]:
    """Tiers of a prompt's chunks that stands first for so long."""
    plan(scheduler, "a", IDS, link_params(PROMPT, "naive"))
    now[0] += seconds
    external = scheduler.matched("a", 0)
    if external:
        scheduler.allocated("a", range(1000), external)
    run(scheduler, [Worker()])
    told = scheduler.gone("a")
    scheduler.check_integrity()
    assert told is not None
    return [chunk["tier"] for chunk in told[KEY]["chunks"]]


def test_what_is_slower_read_than_computed_is_linked_where_it_is_read_in_the_queue(
    scheduler: LinkScheduler, now: list[float]
) -> None:
    assert linked(scheduler, now, 0.0) == [COMPUTED] * 3
    waited(scheduler, now, 1000.0)
    assert COMPUTED not in linked(scheduler, now, 1000.0)


def test_a_turn_that_was_shorter_than_expected_is_judged_by_what_it_was(
    scheduler: LinkScheduler, now: list[float]
) -> None:
    waited(scheduler, now, 1000.0)
    assert linked(scheduler, now, 0.0) == [COMPUTED] * 3


def test_by_layers_nothing_is_read_in_the_queue(
    make_scheduler: MakeScheduler, scheduler: LinkScheduler, now: list[float]
) -> None:
    layered = make_scheduler(link_when="sooner", clock=lambda: now[0], load_timeout_s=1e6, loader="layerwise")
    layered.pace.rates = scheduler.pace.rates
    waited(layered, now, 1000.0)
    assert linked(layered, now, 1000.0) == [COMPUTED] * 3


def test_one_short_turn_tells_that_nobody_waits(scheduler: LinkScheduler, now: list[float]) -> None:
    waited(scheduler, now, 1000.0)
    waited(scheduler, now, 0.0, times=1)
    assert linked(scheduler, now, 1000.0) == [COMPUTED] * 3
