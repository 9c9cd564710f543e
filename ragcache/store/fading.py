"""How often entries of a tier were asked for, soon and later: each use counts half after so many others."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from ragcache.store.eviction.base import Uses

MOST = 1 << 16  # names that are remembered, about 20 MB
SOON, LATER = 30, 20_000  # uses of any entry until one counts half


@dataclass(slots=True)
class _Known:
    count: float = 0.0
    soon: float = 0.0
    later: float = 0.0
    worth: float = 0.0
    at: int = 0
    missed: bool = False


class FadingUses:
    """Of one tier, since it was opened, by names of entries, also of those that are not there. Threads share it.

    What is asked for in vain and put then was asked for once. So was what is put without that: somebody wanted it.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known = OrderedDict[str, _Known]()  # the one that was used longest ago first
        self._now = 0  # uses so far

    def use(self, name: str, *, missed: bool = False) -> None:
        with self._lock:
            self._count(name).missed = missed

    def come(self, name: str, *, held: bool) -> None:
        """Something of this name is put, and may not be taken in; where it was `held` it is put again."""
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.missed:
                known.missed = False
            elif not held:
                self._count(name)

    def credit(self, name: str, worth: float) -> None:
        """To one that was used, which counted as 1."""
        with self._lock:
            if (known := self._known.get(name)) is not None:
                known.worth += worth - 1

    def forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)

    def of(self, name: str, told: float = 0.0) -> Uses:
        """Until now. `told`: uses in all, as a folder tells them; those that are not among ours were others' or of
        before, nobody knows when.
        """
        with self._lock:
            known, now = self._known.get(name), self._now
            known = known or _Known(at=now)
            soon, later = _faded(known, now)
            before = max(0.0, told - known.count)
            count = known.count + before
            return Uses(count, soon, later + before * 0.5 ** (now / LATER), known.worth + before)

    def _count(self, name: str) -> _Known:
        self._now += 1
        known = self._known.setdefault(name, _Known())
        known.soon, known.later = (faded + 1 for faded in _faded(known, self._now))
        known.count += 1
        known.worth += 1
        known.at = self._now
        self._known.move_to_end(name)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return known


def _faded(known: _Known, now: int) -> tuple[float, float]:
    passed = now - known.at
    return known.soon * 0.5 ** (passed / SOON), known.later * 0.5 ** (passed / LATER)
