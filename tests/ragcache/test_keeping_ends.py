"""Keepers at the end of their program, and in a child of it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from ragcache.keeping import Keeper
from tests.ragcache.test_keeping import Steps

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
