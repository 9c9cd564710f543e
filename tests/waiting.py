"""Waiting for what another thread, process or clock does, without keeping a core from it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

LOOK_S = 0.01


def wait_until(reached: Callable[[], object], seconds: float, told: Callable[[], str] = str) -> None:
    """Look again and again. AssertionError, with what is `told`, when it is not reached in time."""
    deadline = monotonic() + seconds
    while not reached():
        assert monotonic() < deadline, told()
        sleep(LOOK_S)
