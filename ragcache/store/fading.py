"""How often entries of a tier were asked for, soon and later: each use counts half after so many others.

Who asks for an entry again at once is likely the same conversation, which tells less of others'. So for the long time
such a use counts from AGAIN on, by how long ago the last one was. No less, or what every prompt has would be worth no
more than what some have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from ragcache.host import BriefLock
from ragcache.store.eviction.base import AGAIN, BURST, LATER, SOON, Uses

MOST = 1 << 16  # names that are remembered, about 20 MB
OTHERS = 8.0  # uses that are believed of an entry that others used, or that was used before: nobody knows when


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

    def __init__(self, most: int = MOST, clock: Callable[[], float] = monotonic) -> None:
        self._most, self._clock, self._began = most, clock, clock()
        self._lock = BriefLock()
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

    def of(self, name: str) -> Uses:
        """Until now."""
        with self._lock:
            known = self._known.get(name) or _Known(at=self._now)
            return Uses(known.count, *_faded(known, self._now), known.worth)

    def of_folder(self, name: str, told: float, age_s: float) -> Uses:
        """Of one that a folder tells of: how often it was used in all, beside having been put, and how long ago last.
        What is not ours of that was others' or before, and counts as if all had been then, at the pace of uses here.
        """
        with self._lock:
            known = self._known.get(name) or _Known(at=self._now)
            pace = (self._now + 1) / (self._clock() - self._began + 1)
            others = min(OTHERS, max(0.0, told + 1 - known.count))
            soon, later = _faded(known, self._now)
            passed = age_s * pace
            soon += min(1.0, others) * 0.5 ** (passed / SOON)
            return Uses(known.count + others, soon, later + others * 0.5 ** (passed / LATER), known.worth + others)

    def _count(self, name: str) -> _Known:
        self._now += 1
        known = self._known.setdefault(name, _Known())
        soon, later = _faded(known, self._now)
        repeats = 0.5 ** ((self._now - known.at) / BURST) if known.count else 0.0
        known.soon, known.later = soon + 1, later + 1 - (1 - AGAIN) * repeats
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
