from __future__ import annotations

import pytest

from ragcache.address import history_of
from ragcache.engine.vllm import budget, jobs
from ragcache.engine.vllm.budget import Budget
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.orders import Answers, Failed, Incident, Loaded, Stored
from ragcache.engine.vllm.requests import KEY, capture_params, link_params
from ragcache.loader import PieceLoaded
from ragcache.types import Segment, VariantKey
from tests.ragcache.engine.vllm.conftest import DOCUMENT, FREE, PROMPT, SYSTEM, MakeScheduler, arrive, plan
from tests.tiny import Tiny, make_system

SEGMENTS: list[Segment] = [SYSTEM, *DOCUMENT[:2]]
IDS = [token for segment in SEGMENTS for token in segment.ids]


def ask(
    scheduler: LinkScheduler, tiny: Tiny, segments: list[Segment], patient: bool = False, name: str = "a"
) -> VariantKey:
    """-> the key that the last segment will have."""
    keys = [VariantKey(tiny.engine.spec.fingerprint, "", (), segments[0].hash)]
    for segment in segments[1:]:
        hashes = tuple(key.chunk for key in keys[1:])
        keys.append(VariantKey(keys[0].fingerprint, SYSTEM.hash, hashes, segment.hash, history_of(keys[1:])))
    ids = [token for segment in segments for token in segment.ids]
    scheduler.exchanges = {"exchange"} if patient else ()
    params = capture_params(segments, keys, "exchange" if patient else "", patient)
    assert plan(scheduler, name, ids, params) == 0, "nobody shares its blocks"
    scheduler.allocated(name, range(9), scheduler.matched(name, 0))
    return keys[-1]


def test_what_stands_before_is_loaded_and_the_last_segment_computed(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler(captures=True)
    key = ask(scheduler, tiny, SEGMENTS)
    (load,) = scheduler.step(FREE).load
    assert [piece.start for piece in load.pieces] == [0, 7]
    scheduler.answered(Answers(loaded=[Loaded("a", PieceLoaded(0, 0, "ram")), Loaded("a", PieceLoaded(1, 0, "ram"))]))
    orders = scheduler.step(FREE)
    (capture,) = orders.capture
    assert capture.key == key
    assert capture.rows.positions == tuple(range(27, 58))
    assert capture.rows.ids == SEGMENTS[-1].ids
    assert orders.finish == scheduler.step(FREE).finish == (), "it is being stored"
    scheduler.answered(Answers(stored=[Stored("a")], incidents=[Incident("a", "KV not stored: the disk is full")]))
    assert scheduler.step(FREE).finish == ("a",)
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["incidents"] == ["KV not stored: the disk is full"]


def test_a_capture_that_can_wait_takes_small_slices(
    make_scheduler: MakeScheduler, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a step that nobody shares too: who comes amid it waits for its end."""
    monkeypatch.setattr(jobs, "PATIENT", 10)
    scheduler, slices = make_scheduler(captures=True), list[int]()
    ask(scheduler, tiny, SEGMENTS, patient=True)
    scheduler.step(FREE)
    scheduler.answered(Answers(loaded=[Loaded("a", PieceLoaded(0, 0, "ram")), Loaded("a", PieceLoaded(1, 0, "ram"))]))
    while not (orders := scheduler.step(FREE)).finish:
        slices += [len(one.rows.positions) for one in orders.capture]
    slices += [len(one.rows.positions) for one in orders.capture]
    assert slices == [10, 10, 10, 1]


def test_a_capture_that_can_wait_leaves_most_steps_to_others(
    make_scheduler: MakeScheduler, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PATIENT", 20)
    monkeypatch.setattr(jobs, "EACH", 4)
    scheduler, slices = make_scheduler(captures=True, step_tokens=32), list[int]()
    ask(scheduler, tiny, SEGMENTS, patient=True)
    scheduler.step(FREE)
    scheduler.answered(Answers(loaded=[Loaded("a", PieceLoaded(0, 0, "ram")), Loaded("a", PieceLoaded(1, 0, "ram"))]))
    while not (orders := scheduler.step(Budget(1000, True, 1000))).finish:
        slices.append(sum(len(one.rows.positions) for one in orders.capture))
    assert slices == [0, 0, 0, 20, 0, 0, 0]
    assert [len(one.rows.positions) for one in orders.capture] == [11]


def test_none_waits_for_those_who_wait_for_its_room(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler(captures=True, step_tokens=32, room_bytes=1)
    ask(scheduler, tiny, SEGMENTS, patient=True)
    scheduler.step(FREE)
    scheduler.answered(Answers(loaded=[Loaded("a", PieceLoaded(0, 0, "ram")), Loaded("a", PieceLoaded(1, 0, "ram"))]))
    arrive(scheduler, "b", "naive")
    assert scheduler.step(Budget(1000, True, 1000)).capture == (), "nobody was refused before this step"
    steps = [scheduler.step(Budget(1000, True, 1000)) for _ in range(2)]
    assert [len(order.capture) for order in steps] == [1, 0]
    assert [one.request for one in steps[1].load] == ["b"]


def test_who_was_refused_and_has_gone_hurries_none(
    make_scheduler: MakeScheduler, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "EACH", 4)
    scheduler = make_scheduler(captures=True, room_bytes=1)
    ask(scheduler, tiny, SEGMENTS, patient=True)
    scheduler.step(FREE)
    scheduler.answered(Answers(loaded=[Loaded("a", PieceLoaded(0, 0, "ram")), Loaded("a", PieceLoaded(1, 0, "ram"))]))
    arrive(scheduler, "b", "naive")
    scheduler.step(Budget(1000, True, 1000))
    scheduler.gone("b")
    steps = [scheduler.step(Budget(1000, True, 1000)) for _ in range(3)]
    assert [len(order.capture) for order in steps] == [0, 0, 1]


def test_the_system_segment_has_nothing_before_it(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler(captures=True)
    ask(scheduler, tiny, [SYSTEM])
    (capture,) = scheduler.step(FREE).capture
    assert capture.rows.positions == tuple(range(7))


def test_a_long_segment_is_captured_in_slices(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    """Each within what the step leaves, so that nobody waits for the whole."""
    scheduler = make_scheduler(captures=True, step_tokens=12, least_tokens=4)
    ask(scheduler, tiny, SEGMENTS)
    scheduler.step(FREE)
    scheduler.answered(Answers(loaded=[Loaded("a", PieceLoaded(0, 0, "ram")), Loaded("a", PieceLoaded(1, 0, "ram"))]))
    captures, finished = [], list[str]()
    while not finished and len(captures) < 10:
        orders = scheduler.step(Budget(1000, True, 1000))
        captures += orders.capture
        finished += orders.finish
        scheduler.answered(Answers(stored=[Stored("a") for capture in orders.capture if capture.last]))
    assert finished == ["a"]
    assert [capture.tokens for capture in captures] == [12, 12, 7]
    assert [position for capture in captures for position in capture.rows.positions] == list(range(27, 58))
    assert [capture.last for capture in captures] == [False, False, True]
    assert {(capture.start, capture.segment) for capture in captures} == {(27, SEGMENTS[-1])}


def test_few_are_under_way_to_the_store(
    make_scheduler: MakeScheduler, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is slow fills no memory, nor the room that linked prompts need, also where their clients go away."""
    monkeypatch.setattr(budget, "MOST_CAPTURES", 2)
    scheduler, began = make_scheduler(captures=True), list[str]()
    for number in range(6):
        ask(scheduler, tiny, [make_system(9 + number)], name=f"c{number}")
    for _ in range(5):
        began += [one.request for one in scheduler.step(FREE).capture]
    assert began == ["c0", "c1"]
    assert scheduler._rooms.nbytes == 0, "what waits to be written needs none, and what waits for that has none"
    scheduler.gone("c0")
    assert not scheduler.step(FREE).capture, "it is in memory all the same"
    scheduler.answered(Answers(stored=[Stored("c0")]))
    assert [one.request for one in scheduler.step(FREE).capture] == ["c2"]
    scheduler.answered(Answers(failed=[Failed("c2", "out of memory")]))
    assert [one.request for one in scheduler.step(FREE).capture] == ["c3"]
    ask(scheduler, tiny, [make_system(20)], patient=True, name="own")
    assert [one.request for one in scheduler.step(FREE).capture] == ["own"], "which is handed over"
    for name in (*(f"c{number}" for number in range(1, 6)), "own"):
        scheduler.gone(name)
    scheduler.answered(Answers(stored=[Stored("c1"), Stored("c3")]))
    assert not scheduler._capturing._names
    scheduler.check_integrity()


def test_one_that_breaks_when_its_client_has_gone_holds_no_place(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    """Its last slice was ordered by then."""
    scheduler = make_scheduler(captures=True)
    ask(scheduler, tiny, [SYSTEM])
    assert scheduler.step(FREE).capture
    scheduler.gone("a")
    scheduler.answered(Answers(failed=[Failed("a", "out of memory")]))
    assert not scheduler._capturing._names


def test_captures_in_line_for_the_disk_hold_back_no_reading(
    make_scheduler: MakeScheduler, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MOST_CAPTURES", 1)
    scheduler = make_scheduler(captures=True)
    for name in "ab":
        ask(scheduler, tiny, [make_system(9)], name=name)
        scheduler.step(FREE)
    plan(scheduler, "c", [token for segment in PROMPT for token in segment.ids], link_params(PROMPT, "naive"))
    assert [one.request for one in scheduler.step(FREE).fetch] == ["c"]


def test_a_capture_that_breaks_ends(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler(captures=True, least_tokens=4)
    ask(scheduler, tiny, [SYSTEM])
    assert scheduler.step(Budget(5, False, 1000)).finish == ()
    scheduler.answered(Answers(failed=[Failed("a", "out of memory")]))
    orders = scheduler.step(FREE)
    assert (orders.capture, orders.finish, orders.failed) == ((), ("a",), ("a",))
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["incidents"] == ["not captured: out of memory"]
    scheduler.check_integrity()


def test_without_what_stands_before_nothing_is_captured(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler(captures=True)
    ask(scheduler, tiny, SEGMENTS)
    scheduler.step(FREE)
    scheduler.answered(
        Answers(loaded=[Loaded("a", PieceLoaded(0, None, incidents=("bad",))), Loaded("a", PieceLoaded(1, 0, "ram"))])
    )
    orders = scheduler.step(FREE)
    assert (orders.capture, orders.finish) == ((), ("a",))
    assert orders.failed == ("a",), "vLLM computes it: its blocks hold what others left there"
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["incidents"] == ["bad", "not captured: segment 0 before it is not stored"]
    scheduler.check_integrity()


def test_what_is_captured_is_told_though_vllm_takes_its_blocks_back(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    """And asks for it anew, where it may hold some of it."""
    scheduler = make_scheduler(captures=True)
    ask(scheduler, tiny, [SYSTEM])
    scheduler.runs("a")
    scheduler.step(FREE)
    scheduler.answered(Answers(stored=[Stored("a")]))
    assert scheduler.step(FREE).finish == ("a",)
    assert scheduler.matched("a", 4) == 0
    scheduler.check_integrity()
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["incidents"] == []


def test_several_ranks_hold_some_heads_each(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler(captures=True, ranks=2)
    key = VariantKey(tiny.engine.spec.fingerprint, "", (), SYSTEM.hash)
    assert plan(scheduler, "a", SYSTEM.ids, capture_params([SYSTEM], [key])) is None
    told = scheduler.gone("a")
    assert told is not None
    assert "one rank" in told[KEY]["incidents"][0]


def test_the_totals_count_it_apart(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler(captures=True)
    ask(scheduler, tiny, [SYSTEM])
    scheduler.step(Budget(1000, True, 1))
    scheduler.answered(Answers(stored=[Stored("a")]))
    assert scheduler.step(FREE).finish == ("a",)
    scheduler.gone("a")
    totals = scheduler.outcomes.totals.take()
    assert totals.pop("seconds/parked") > 0
    assert totals == {"requests/captured": 1}
    assert scheduler.outcomes.totals.take() == {}


def test_what_vllm_holds_already_does_not_stand_in(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler(captures=True)
    keys = [VariantKey(tiny.engine.spec.fingerprint, "", (), SYSTEM.hash)]
    plan(scheduler, "a", SYSTEM.ids, capture_params([SYSTEM], keys))
    scheduler.allocated("a", range(9), scheduler.matched("a", 4))
    orders = scheduler.step(FREE)
    assert (orders.load, orders.capture, orders.finish, orders.failed) == ((), (), ("a",), ("a",))
    told = scheduler.gone("a")
    assert told is not None
    assert told[KEY]["incidents"] == ["not captured: vLLM holds 4 tokens of it already"]
