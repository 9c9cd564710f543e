"""What is done between jobs gives way to them, and goes on behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from app.ingestion.housekeeping import Housekeeper
from app.ingestion.lanes import Lanes
from tests.waiting import wait_until

PATIENCE_S = 30.0


def test_it_gives_way_to_who_wants_to_compute_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AGAIN_S", 0.01), ("TURN_S", 0.0)):
        monkeypatch.setattr(f"app.ingestion.housekeeping.{name}", value)
    lanes, rounds, through = Lanes(), list[str](), threading.Event()

    def forget(stopped: Callable[[], bool]) -> None:
        rounds.append("begun")
        wait_until(lambda: stopped() or through.is_set(), PATIENCE_S)

    house = Housekeeper(lanes, lambda: rounds.append("swept"), [forget])
    house.start()
    wait_until(lambda: rounds[1:] == ["begun"], PATIENCE_S)
    with lanes.computing(lambda: False):
        assert rounds == ["swept", "begun"]
        through.set()
    wait_until(lambda: len(rounds) >= 3, PATIENCE_S)
    house.stop()
    house.thread.join(PATIENCE_S)
    assert rounds == ["swept", "begun", "begun"] and not house.thread.is_alive()


def test_what_cannot_be_done_ends_neither_it_nor_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ingestion.housekeeping.ROUND_S", 0.01)
    tried = list[str]()

    def fails(name: str) -> None:
        tried.append(name)
        raise OSError("the disk is away")

    house = Housekeeper(Lanes(), lambda: fails("sweep"), [lambda _: fails("first"), lambda _: fails("last")])
    house.start()
    wait_until(lambda: len(tried) >= 6, PATIENCE_S)
    house.stop()
    house.thread.join(PATIENCE_S)
    assert tried[:6] == ["sweep", "first", "last", "sweep", "first", "last"]


def test_what_fails_has_neither_all_turns_nor_one_each_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it gives way each time; once it is done, it goes on as before."""
    monkeypatch.setattr("app.ingestion.housekeeping.TURN_S", 0.0)
    lanes, begun, pauses = Lanes(), list[str](), list[float]()
    house = Housekeeper(lanes, lambda: None, [lambda over: fails(over), lambda over: works(over)])

    class Hastened(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            return len(pauses) > 9

    def fails(over: Callable[[], bool]) -> None:
        begun.append("fails")
        over()
        if len(begun) <= 8:
            raise OSError("the disk is away")

    def works(over: Callable[[], bool]) -> None:
        begun.append("works")
        over()

    house._ending = Hastened()
    monkeypatch.setattr(Lanes, "is_wanted", property(lambda lanes: len(begun) <= 12))
    house._serve()
    assert begun[:8] == ["fails", "works", "works", "fails"] * 2
    assert pauses == [0.0, 60.0, 120.0, 240.0, 480.0, 30.0, 30.0, 3600.0, 3600.0, 3600.0]
