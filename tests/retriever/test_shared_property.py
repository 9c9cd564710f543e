from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from retriever.shared_property import shared_property

THREADS = 4


class House:
    """Counts what is made; whoever makes waits until all threads do, which they never should."""

    def __init__(self, failures: int = 0) -> None:
        self.made: list[str] = []
        self.failures = failures
        self._all_inside = threading.Barrier(THREADS)

    @shared_property
    def roof(self) -> list[str]:
        """What keeps the rain out."""
        self.made.append("roof")
        with suppress(threading.BrokenBarrierError):
            self._all_inside.wait(0.5)
        if self.failures:
            self.failures -= 1
            raise OSError("no tiles")
        return ["tiles"]

    @shared_property
    def chimney(self) -> list[str]:
        return [*self.roof, "bricks"]

    @shared_property
    def cellar(self) -> None:
        self.made.append("cellar")


def at_once(call: Callable[[], object]) -> list[object]:
    start = threading.Barrier(THREADS)

    def run(_: int) -> object:
        start.wait()
        return call()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_threads_get_the_one_that_was_made_once() -> None:
    house = House()
    found = at_once(lambda: house.roof)
    assert house.made == ["roof"]
    assert {id(one) for one in found} == {id(house.roof)}
    assert House().roof is not house.roof


def test_one_may_be_made_of_another() -> None:
    house = House()
    assert at_once(lambda: house.chimney) == [["tiles", "bricks"]] * THREADS
    assert house.made == ["roof"]


def test_what_failed_is_tried_again() -> None:
    house = House(failures=1)
    with pytest.raises(OSError, match="no tiles"):
        _ = house.roof
    assert House.roof.peek(house) is None
    assert house.roof == ["tiles"]


def test_nothing_is_a_value_too() -> None:
    house = House()
    assert (house.cellar, house.cellar, house.made) == (None, None, ["cellar"])


def test_it_is_looked_at_given_and_forgotten() -> None:
    house = House()
    assert House.roof.peek(house) is None
    assert house.made == []
    house.roof = ["straw"]
    assert house.roof == House.roof.peek(house) == ["straw"]
    del house.roof
    assert house.roof == ["tiles"]
    assert House.roof.__doc__ == "What keeps the rain out."
