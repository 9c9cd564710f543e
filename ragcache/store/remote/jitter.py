"""Pauses, each machine's its own: all would come back together, and fail together."""

from __future__ import annotations

import random

_own = random.Random()  # the program's numbers stay as its seed has them


def jittered(seconds: float) -> float:
    return seconds * _own.uniform(0.75, 1.25)
