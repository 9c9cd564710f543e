"""Pins of a tier in memory, and what any tier's may say."""

from __future__ import annotations

import math
import time

from ragcache.errors import ConfigError

LONGEST_S = 100 * 366 * 24 * 3600.0  # a file's index counts nanoseconds in 64 bits


def check_pin(owner: str, seconds: float | None) -> None:
    """Raises ConfigError for what some tier could not keep."""
    try:
        owner.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{owner!r} cannot own a pin: give text that is UTF-8, without lone surrogates") from None
    if seconds is not None and not abs(seconds) <= LONGEST_S:  # as with what is no number
        raise ConfigError(f"seconds={seconds} of a pin: give up to {LONGEST_S:.0f}, or None for one without an end")


class Pins:
    """By names of entries, each by its owners until some time; under the tier's lock. Entries may come and go."""

    def __init__(self) -> None:
        self._until: dict[str, dict[str, float]] = {}
        self._below = set[str]()

    def add(self, name: str, owner: str, seconds: float | None, *, below: bool) -> None:
        """`below`: a slower tier holds the entry, whose pin keeps it there."""
        self._until.setdefault(name, {})[owner] = math.inf if seconds is None else time.monotonic() + seconds
        (self._below.add if below else self._below.discard)(name)

    def remove(self, name: str, owner: str) -> None:
        own = self._until.get(name, {})
        own.pop(owner, None)
        if not own:
            self.forget(name)

    def forget(self, name: str) -> None:
        self._until.pop(name, None)
        self._below.discard(name)

    def holds(self, name: str) -> bool:
        """Whether it is pinned now."""
        if name not in self._until:
            return False
        now = time.monotonic()
        if any(until > now for until in self._until[name].values()):
            return True
        self.forget(name)
        return False

    def keeps(self, name: str) -> bool:
        """Whether it may not go from here: else more pins than memory has room for leave it none for the rest."""
        return self.holds(name) and name not in self._below
