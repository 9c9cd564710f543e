"""What is read of prompts that wait in vLLM's queue."""

from __future__ import annotations

import pytest

from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.orders import Answers, Orders
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.loader import SYSTEM as SYSTEM_PIECE
from ragcache.types import Segment
from tests.ragcache.engine.vllm.conftest import (
    DOCUMENT,
    FREE,
    PROMPT,
    QUESTION,
    SYSTEM,
    MakeScheduler,
    NamesDouble,
    Worker,
    arrive,
    run,
)

OTHER: list[Segment] = [SYSTEM, DOCUMENT[1], QUESTION]
CACHED = sum(len(segment) for segment in PROMPT[:-1])


def waits(
    scheduler: LinkScheduler, name: str, segments: list[Segment] = PROMPT, *, held: int = 0, block: int = 0
) -> NamesDouble:
    names = NamesDouble(block)
    names.held = held
    ids = [token for segment in segments for token in segment.ids]
    scheduler.arrived(name, ids, link_params(segments, "naive"), names)
    scheduler._plans.wait(60)
    scheduler._adopt_plans()
    return names


def fetched(orders: Orders) -> list[tuple[str, list[int]]]:
    return [(one.request, [piece.index for piece in one.pieces]) for one in orders.fetch]


def test_it_is_read_once_and_loaded_then(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker()
    waits(scheduler, "a")
    orders = scheduler.step(FREE)
    assert orders and fetched(orders) == [("a", [SYSTEM_PIECE, 0, 1, 2])]
    assert not scheduler.step(FREE)
    scheduler.check_integrity()
    external = scheduler.matched("a", 0)
    assert external
    scheduler.allocated("a", range(100), external)
    orders = scheduler.step(FREE)
    assert [load.pieces for load in orders.load] and not orders.fetch and not orders.forgo
    scheduler.answered(worker.obey(orders))
    run(scheduler, [worker])
    assert worker.finished == ["a"]
    scheduler.gone("a")
    assert not scheduler.step(FREE).forgo
    scheduler.check_integrity()


def test_who_gets_blocks_at_once_is_loaded_alone(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    arrive(scheduler, "a", "naive")
    orders = scheduler.step(FREE)
    assert orders.load and not orders.fetch


@pytest.mark.parametrize("fetch", [False, True])
def test_who_goes_away_is_read_for_no_more(make_scheduler: MakeScheduler, fetch: bool) -> None:
    scheduler = make_scheduler()
    waits(scheduler, "a")
    if fetch:
        assert scheduler.step(FREE).fetch
    scheduler.gone("a")
    orders = scheduler.step(FREE)
    assert (orders.fetch, orders.forgo) == ((), ("a",) if fetch else ())
    assert not scheduler.step(FREE)
    scheduler.check_integrity()


def test_who_goes_away_between_his_blocks_and_their_load(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    waits(scheduler, "a")
    scheduler.step(FREE)
    external = scheduler.matched("a", 0)
    assert external
    scheduler.allocated("a", range(100), external)
    scheduler.gone("a")
    assert scheduler.step(FREE).forgo == ("a",)
    scheduler.check_integrity()


def test_what_is_not_linked_after_all_is_read_no_more(make_scheduler: MakeScheduler) -> None:
    """vLLM turns out to have all of it."""
    scheduler = make_scheduler()
    waits(scheduler, "a")
    assert scheduler.step(FREE).fetch
    assert scheduler.matched("a", CACHED) == 0
    assert scheduler.step(FREE).forgo == ("a",)
    scheduler.check_integrity()


def test_what_the_prefix_cache_has_whole_is_not_read(make_scheduler: MakeScheduler) -> None:
    """Of what it has in part all is read that its load will name."""
    scheduler = make_scheduler()
    waits(scheduler, "a", held=33)
    waits(scheduler, "b", held=CACHED)
    (fetch,) = scheduler.step(FREE).fetch
    external = scheduler.matched("a", 33)
    assert external
    scheduler.allocated("a", range(100), external)
    (load,) = scheduler.step(FREE).load
    assert (fetch.request, fetch.pieces) == ("a", load.pieces)


def test_one_is_read_at_a_time_in_their_order(make_scheduler: MakeScheduler) -> None:
    """And of several who wait for one link the first alone, as long as it is not there."""
    scheduler, worker = make_scheduler(), Worker()
    names = {name: waits(scheduler, name, PROMPT if name != "c" else OTHER, block=1) for name in "abc"}
    assert [name for name, _ in fetched(scheduler.step(FREE))] == ["a"]
    assert not any(scheduler.step(FREE).fetch for _ in range(3))
    external = scheduler.matched("a", 0)
    assert external
    scheduler.allocated("a", range(100), external)
    worker.slow = {2}
    orders = scheduler.step(FREE)
    assert orders.load and not orders.fetch, "it is loaded"
    scheduler.answered(worker.obey(orders))
    pieces = orders.load[0].pieces
    scheduler.answered(Answers(loaded=[worker._loaded("a", piece) for piece in pieces if piece.index == 2]))
    orders = scheduler.step(FREE)
    assert [name for name, _ in fetched(orders)] == ["c"], "b waits for what a makes"
    worker.obey(orders)
    scheduler.gone("c")
    run(scheduler, [worker])
    assert worker.finished == ["a"]
    names["b"].held = names["b"].share.tokens
    assert not any(scheduler.step(FREE).fetch for _ in range(3)), "it is in the prefix cache"
    for name in "ab":
        scheduler.gone(name)
    scheduler.check_integrity()


def test_what_breaks_there_is_one_request_s_alone(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    broken, sound = waits(scheduler, "a"), waits(scheduler, "b", OTHER)
    del broken.held
    assert [name for name, _ in fetched(scheduler.step(FREE))] == ["b"]
    assert scheduler.matched("a", 0) == 0, "it is an ordinary request"
    told = scheduler.gone("a")
    assert told is not None and "not linked" in told[KEY]["incidents"][0]
    assert sound.held == 0
    scheduler.gone("b")
    scheduler.check_integrity()


def test_whoever_reads_in_order_to_go_on_comes_first(make_scheduler: MakeScheduler) -> None:
    scheduler, worker = make_scheduler(), Worker(slow={2})
    arrive(scheduler, "a", "naive")
    waits(scheduler, "b", OTHER)
    orders = scheduler.step(FREE)
    assert orders.load and not orders.fetch
    scheduler.answered(worker.obey(orders))
    assert not scheduler.step(FREE).fetch
    pieces = orders.load[0].pieces
    scheduler.answered(Answers(loaded=[worker._loaded("a", piece) for piece in pieces if piece.index == 2]))
    assert fetched(scheduler.step(FREE)) == [("b", [SYSTEM_PIECE, 0])]
