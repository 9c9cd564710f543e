"""What waits until nobody waits for an answer."""

from __future__ import annotations

import threading

import pytest

from ragcache import keeping
from ragcache.keeping import MOST_WAITING, Keeper
from tests.waiting import wait_until

Told = list[str]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a machine stands still amid an answer, a task goes on for no other reason than a test's."""
    monkeypatch.setattr(keeping, "HELD_S", 600.0)
    monkeypatch.setattr(keeping, "CLOSING_S", 600.0)


class Steps:
    """A task of several steps that pauses between them."""

    def __init__(self, keeper: Keeper, steps: int = 3):
        self.keeper, self.steps = keeper, steps
        self.done = 0
        self.began = threading.Event()

    def __call__(self) -> Told:
        for _ in range(self.steps):
            self.began.set()
            self.keeper.pause()
            self.done += 1
        return []


def test_nothing_is_done_while_somebody_waits_for_an_answer() -> None:
    keeper = Keeper()
    task = Steps(keeper)
    with keeper.answering(), keeper.answering():
        keeper.later(task)
        assert not task.began.wait(0.1)
    keeper.settle()
    assert task.done == 3


def test_a_task_holds_on_in_the_middle() -> None:
    keeper, gate, ahead = Keeper(), threading.Event(), threading.Event()
    done: list[str] = []

    def task() -> Told:
        done.append("first")
        ahead.set()
        assert gate.wait(60)
        keeper.pause()
        done.append("second")
        return []

    keeper.later(task)
    assert ahead.wait(60)
    with keeper.answering():
        gate.set()
        threading.Event().wait(0.1)
        assert done == ["first"]
    keeper.settle()
    assert done == ["first", "second"]


def test_it_waits_out_the_moment_between_two_tokens() -> None:
    clock = [0.0]
    keeper = Keeper(clock=lambda: clock[0])
    with keeper.answering():
        pass
    task = Steps(keeper)
    keeper.later(task)
    assert not task.began.wait(0.1), "no time has passed"
    clock[0] = 1.0
    with keeper.answering():
        clock[0] = 2.0
    clock[0] = 3.0
    keeper.close()
    assert task.done == 3


def test_where_answers_never_cease_a_task_has_its_turns() -> None:
    clock, tidied = [0.0], list[int]()
    keeper = Keeper(lambda: tidied.append(task.done), clock=lambda: clock[0])
    task = Steps(keeper)
    with keeper.answering():
        keeper.later(task)
        wait_until(lambda: bool(tidied), 60)
        assert not task.began.wait(0.1)
        assert tidied == [0], "what it keeps from an answer is let go of"
        clock[0] = keeping.HELD_S
        with keeper.answering():
            pass  # the next token
        keeper.settle()
    assert task.done == 3


def test_a_turn_waits_for_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "HELD_S", 0.05)
    keeper = Keeper()
    task = Steps(keeper)
    with keeper.answering():
        keeper.later(task)
        keeper.settle()
    assert task.done == 3


def test_its_thread_starts_without_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting waits until the other thread has begun, where a finaliser may end an answer."""
    keeper, start = Keeper(), threading.Thread.start
    ended: list[bool] = []

    def begin(thread: threading.Thread) -> None:
        other = threading.Thread(target=keeper.begin_answering(), daemon=True)
        start(other)
        other.join(60)
        ended.append(not other.is_alive())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    task = Steps(keeper)
    keeper.later(task)
    keeper.settle()
    assert (ended, task.done) == ([True], 3)


def test_a_turn_is_short() -> None:
    clock, gate = [0.0], threading.Event()
    tidied = threading.Event()
    keeper = Keeper(tidied.set, clock=lambda: clock[0])
    done: list[str] = []

    def task() -> Told:
        done.append("first")
        clock[0] += 1.0
        gate.set()
        keeper.pause()
        done.append("second")
        return []

    with keeper.answering():
        keeper.later(task)
        assert tidied.wait(60)
        threading.Event().wait(0.1)
        clock[0] = keeping.HELD_S
        with keeper.answering():
            pass
        assert gate.wait(60)
        threading.Event().wait(0.1)
        assert done == ["first"]
        keeper.close()
    assert done == ["first", "second"]


def test_an_answer_ends_once() -> None:
    """By whoever is first: its reader, the engine that has delivered, or a finaliser."""
    keeper = Keeper()
    first, second = keeper.begin_answering(), keeper.begin_answering()
    for _ in range(3):
        first()
    task = Steps(keeper)
    keeper.later(task)
    assert not task.began.wait(0.1), "of the second one"
    second()
    keeper.settle()
    assert task.done == 3


def test_closing_does_what_waits() -> None:
    keeper = Keeper()
    tasks = [Steps(keeper) for _ in range(5)]
    with keeper.answering():
        for task in tasks:
            keeper.later(task)
        keeper.close()
    assert [task.done for task in tasks] == [3] * 5


def test_closing_begins_nothing_when_it_has_taken_long() -> None:
    clock, done = [0.0], list[float]()
    keeper = Keeper(clock=lambda: clock[0])

    def task() -> Told:
        done.append(clock[0])
        clock[0] += keeping.CLOSING_S * 0.6
        return []

    with keeper.answering():
        for _ in range(5):
            keeper.later(task)
        keeper.close()
    assert done == [0.0, keeping.CLOSING_S * 0.6]
    keeper.later(task)
    keeper.close()
    assert len(done) == 3, "a closed one may be used again"


def test_of_too_many_the_oldest_are_left_out() -> None:
    keeper = Keeper()
    tasks = [Steps(keeper, 1) for _ in range(MOST_WAITING + 3)]
    with keeper.answering():
        for task in tasks:
            keeper.later(task)
    keeper.settle()
    assert [task.done for task in tasks] == [0] * 3 + [1] * MOST_WAITING


def test_what_went_wrong_is_told_once() -> None:
    keeper = Keeper()

    def broken() -> Told:
        raise RuntimeError("out of memory")

    for task in (broken, lambda: ["the disk is full"]):
        keeper.later(task)
    keeper.settle()
    assert keeper.take_told() == [
        "what a prompt lacked was not captured: RuntimeError: out of memory",
        "the disk is full",
    ]
    assert keeper.take_told() == []


def test_it_tidies_up_after_each_task() -> None:
    tidied: list[str] = []
    keeper = Keeper(lambda: tidied.append(threading.current_thread().name))
    keeper.later(list)
    keeper.later(list)
    keeper.settle()
    assert tidied == ["ragcache-keep"] * 2


def test_a_thread_that_cannot_start_costs_what_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, task = Keeper(), Steps(Keeper())

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        keeper.later(task)
    keeper.settle()
    assert "can't start new thread" in keeper.take_told()[0]
    keeper.later(task)
    keeper.close()
    assert task.done == 3


class Odd(Exception):
    """Nothing that a capture is known to raise."""


def test_what_nobody_thought_of_ends_no_more_than_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, task, told = Keeper(), Steps(Keeper()), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda arguments: told.set())

    def odd() -> Told:
        raise Odd

    keeper.later(odd)
    keeper.settle()
    assert told.wait(60)
    keeper.later(task)
    keeper.close()
    assert task.done == 3


def test_an_interrupt_leaves_out_what_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, gate = Keeper(), threading.Event()
    done: list[str] = []

    def task() -> Told:
        done.append("begun")
        gate.set()
        while True:
            keeper.pause()

    keeper.later(task)
    keeper.later(lambda: [*done, "another"])
    assert gate.wait(60)

    def interrupted(work: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(keeper._work), "settle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        keeper.close()
    monkeypatch.undo()
    keeper.settle()
    assert (done, keeper.take_told()) == (["begun"], [])
