"""Answers to one prompt that are asked for together: an engine without a prefix cache of its own computes it once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Together:
    """Of one request: nobody else's prompt is served by it. Threads share it."""

    def __init__(self, answers: int):
        """Each of which asks once; what was made is let go with the last of them."""
        self._lock = threading.Lock()
        self._left = answers
        self._made: tuple[Hashable, Any] | None = None

    def made(self, alike: Hashable, make: Callable[[], T]) -> tuple[T, bool]:
        """What the first of them makes, for which the others wait; and whether it was this one. Whoever is not `alike`
        makes his own, and so does the next one where making fails.
        """
        with self._lock:
            self._left -= 1
            try:
                if self._made is not None and self._made[0] == alike:
                    return self._made[1], False
                made = make()
                self._made = self._made or (alike, made)
                return made, True
            finally:
                if self._left <= 0:
                    self._made = None
