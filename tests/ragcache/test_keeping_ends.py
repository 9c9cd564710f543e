"""Keepers at the end of their program, in a child of it, and what they do last."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from ragcache import keeping
from ragcache.keeping import RECHECK_S, Keeper
from tests.ragcache.test_keeping import Steps
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a machine stands still amid an answer, a task goes on for no other reason than a test's."""
    monkeypatch.setattr(keeping, "HELD_S", 600.0)
    monkeypatch.setattr(keeping, "CLOSING_S", 600.0)


EXIT = """
import threading
import torch
from ragcache.keeping import Keeper

keeper, begun = Keeper(), threading.Event()

def task():
    weights, rows = torch.randn(800, 800), torch.randn(400, 800)
    while True:
        keeper.pause()
        rows = (rows @ weights).tanh()
        begun.set()

keeper.later(task)
assert begun.wait(60)
"""


def test_a_program_may_end_amid_a_task() -> None:
    """Python would end the thread within torch, which then ends the process."""
    ran = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_has_a_keeper_of_its_own(within: bool) -> None:
    """Whether it leaves the answer that its parent had begun, or not."""
    keeper = Keeper()
    answer = ExitStack()
    answer.enter_context(keeper.answering())
    keeper.later(Steps(keeper))
    child = os.fork()
    if child == 0:
        try:
            task = Steps(keeper)
            keeper.later(list)
            if not within:
                answer.close()
            keeper.later(task)
            keeper.settle()
            os._exit(0 if task.done == 3 else 1)
        finally:
            os._exit(2)
    answer.close()
    keeper.settle()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nothing_is_waited_for_when_nothing_is_left_to_do() -> None:
    keeper, gate, began = Keeper(clock=lambda: 0.0), threading.Event(), threading.Event()

    def task() -> list[str]:
        began.set()
        assert gate.wait(60)
        return []

    keeper.later(task)
    assert began.wait(60)
    with keeper.answering():
        gate.set()
        settled = threading.Thread(target=keeper.settle, daemon=True)
        settled.start()
        settled.join(60)
        assert not settled.is_alive()


def test_an_answer_may_end_on_the_thread_that_is_about_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a finaliser, behind its look at the answers: it waits all the same, and nobody wakes it."""
    keeper, waited = Keeper(), list[float]()
    end, change = keeper.begin_answering(), keeper._own._change
    wait = change.wait

    def ended(timeout: float) -> bool:
        waited.append(timeout)
        end()
        return wait(timeout)

    monkeypatch.setattr(change, "wait", ended)
    task = Steps(keeper)
    keeper.later(task)
    wait_until(lambda: keeper._own._thread is None, 60)
    assert task.done == 3
    assert 0 < max(waited) <= RECHECK_S


def test_a_task_that_breaks_its_thread_does_not_take_the_next_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    keeper, task = Keeper(), Steps(Keeper())

    def broken() -> list[str]:
        raise SystemExit

    with keeper.answering():
        keeper.later(broken)
        first = keeper._own._thread
        keeper.later(task)
    keeper.settle()
    assert task.done == 3
    assert first is not None
    first.join(60)  # while its end is not printed


def test_ctrl_c_amid_a_start_leaves_the_keeper_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, tasks = Keeper(), [Steps(Keeper()) for _ in range(2)]

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keeper.later(tasks[0])
    keeper.settle()
    keeper.later(tasks[1])
    keeper.settle()
    assert [task.done for task in tasks] == [3, 3]


def test_what_is_to_be_done_last_waits_for_all_others() -> None:
    keeper, done, held = Keeper(), list[str](), threading.Event()

    def task(name: str) -> Callable[[], list[str]]:
        def run() -> list[str]:
            assert held.wait(60)
            done.append(name)
            return []

        return run

    with keeper.answering():
        keeper.later(task("last"), last=True)
        for name in ("one", "two"):
            keeper.later(task(name))
        held.set()
    keeper.settle()
    keeper.later(task("alone"), last=True)
    keeper.settle()
    assert done == ["one", "two", "last", "alone"]


def test_a_task_that_cannot_hold_on_hears_of_who_waits() -> None:
    keeper, heard = Keeper(), list[str]()
    with keeper.answering(), keeper.disturbed(lambda: heard.append("waits already")):
        assert heard == ["waits already"]
    with keeper.disturbed(lambda: heard.append("began")):
        assert len(heard) == 1
        with keeper.answering(), keeper.answering():
            assert heard[1:] == ["began"] * 2
    with keeper.answering():
        assert len(heard) == 3, "it is over"
