"""How far one file is on its way to a document, and how long the rest takes where that can be told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Literal

Stage = Literal["read", "split", "embedded", "kv"]


class FileStages:
    """One thread tells what is reached, others look. All but the first stage are counted in chunks."""

    def __init__(self, clock: Callable[[], float] = monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._reached: dict[Stage, tuple[int, int]] = {}
        self._since: dict[Stage, tuple[float, int]] = {}  # when each was first told of, and how far it was then
        self._left: float | None = None

    def reached(self, stage: Stage, done: int, of: int, *, last: bool = False) -> None:
        """`last`: no stage follows, so that the pace of this one tells how long all of the rest takes."""
        with self._lock:
            self._reached[stage] = (done, of)
            self._left = self._reckoned(stage, done, of) if last else None

    def as_json(self) -> dict[str, Any]:
        """Nothing before the first stage has ended."""
        with self._lock:
            if not self._reached:
                return {}
            stages = {name: {"done": done, "of": of} for name, (done, of) in self._reached.items()}
            return {"stages": stages, "seconds_left": self._left}

    def _reckoned(self, stage: Stage, done: int, of: int) -> float | None:
        began, before = self._since.setdefault(stage, (self._clock(), done))
        if done <= before:
            return None
        return round((self._clock() - began) / (done - before) * max(0, of - done), 1)
