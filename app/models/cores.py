"""The helpers of threads that compute.

OpenMP gives a thread helpers, so that it computes on several cores, and keeps them as long as the thread lives. They
wait awake for their next piece of work only while those of all threads together are no more than the cores; else each
of a forward's hundreds of operations waits until one wakes up, and an answer takes half as long again. So a thread lets
go of its own when it has answered: in a program that asks from several threads, such as a web server, the next one
answers as soon as the first.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_SOFT = 1  # omp_pause_soft: what is set stays set


def release_helpers() -> None:
    """Of this thread; it gets new ones when it needs some, which takes less than a millisecond."""
    pause = _pause()
    if pause is not None:
        pause(_SOFT)


async def in_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What may compute, for a program with an event loop. The next call may come to another thread."""
    return await asyncio.to_thread(_released, call, *args, **kwargs)


def _released(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return call(*args, **kwargs)
    finally:
        release_helpers()


def _pause() -> Callable[[int], int] | None:
    """Of the OpenMP that torch has loaded; None while there is none, or for one that is older than 5.0."""
    try:
        pause: Callable[[int], int] = ctypes.CDLL(None).omp_pause_resource_all
    except (OSError, TypeError, AttributeError):
        return None
    return pause
