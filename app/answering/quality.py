"""The quality gate: some answers over caches are computed again in full while nobody waits. Where a collection's drift
too far off, more of its tokens are repaired, then nothing of it is linked; when they are near again, it is taken back.

What is measured are the same prompts by the linker that answers, and once something was changed by the one before, so
that the gate sees when it could go back. It knows numbers alone, of this process.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from time import monotonic

from ragcache.errors import RagcacheError
from ragcache.linking.auto import Auto
from ragcache.linking.base import Linker
from ragcache.linking.baselines import Full

LIMIT = 0.15  # nats a token: the bundled model has .02 on its samples, and without any repair .07
FEWEST, MOST = 8, 16  # measurements that a change is made by, the last ones
FIRST = 4  # answers of a collection that are measured in any case
BACK = 1 / 2  # of the limit: what is to be taken back must be so near
CLIP = 2 * LIMIT  # that one answer counts as at most: few that are far off, or no numbers, tell of no drift
MORE = 2.5  # times as many tokens are repaired
TIME = 0.05  # of all time that measuring may take
BEGIN_S = 60.0  # and beyond that
LOST_S = 600.0  # after which a measurement is waited for no longer
REST_S = 60.0  # for which nothing is measured behind a measurement that failed
log = logging.getLogger(__name__)


class NotMeasured(RagcacheError):
    """An answer, for others were answered, or it cannot be told what was linked."""

    status = 503


class Level(IntEnum):
    """How a collection's prompts are linked."""

    ASKED = 0  # as the settings say
    MORE = 1  # with more repair
    OFF = 2  # not at all


@dataclass(frozen=True)
class QualityState:
    """Of a collection, for people to look at."""

    collection: int
    level: Level
    kl: float | None  # the mean of the last measurements, in nats a token
    measured: int
    told: str  # what its users should know; "" where it is as asked


@dataclass
class _Drift:
    level: Level = Level.ASKED
    measured: int = 0
    answers: int = 0
    empty: int = 0  # measurements in a row of which nothing was cached
    steps: Sequence[Level] = (Level.ASKED, Level.MORE, Level.OFF)  # that its linker knows
    seen: deque[int] = field(default_factory=lambda: deque(maxlen=MOST))  # prompts that were measured
    now: deque[float] = field(default_factory=lambda: deque(maxlen=MOST))  # by the linker that answers
    before: deque[float] = field(default_factory=lambda: deque(maxlen=MOST))  # by that of the level below

    def below(self) -> Level | None:
        return self.steps[place - 1] if (place := self.steps.index(self.level)) else None

    def go(self, level: Level) -> None:
        self.level, self.empty = level, 0
        self.now.clear()
        self.before.clear()


class QualityGate:
    """Threads share it."""

    def __init__(self, share: float, clock: Callable[[], float] = monotonic):
        """`share`: of a collection's answers that are measured."""
        self.share, self._clock = share, clock
        self._began, self.seconds = clock(), 0.0  # that measuring took
        self._lock = threading.Lock()
        self._drifts: dict[int, _Drift] = {}
        self._pending: float | None = None  # since when one is being measured
        self._rests = 0.0  # until then
        self.failed = 0  # measurements

    def linker(self, collection: int, asked: Linker) -> Linker:
        """That a prompt of the collection is answered with."""
        with self._lock:
            drift = self._drifts.get(collection)
            return at_level(asked, drift.level) if drift else asked

    def notes(self, collection: int) -> tuple[str, ...]:
        with self._lock:
            drift = self._drifts.get(collection)
            return (_told(drift.level),) if drift and drift.level else ()

    def samples(self, collection: int, prompt: int) -> bool:
        """Whether the answer that ends is to be measured: the first ones, then each so many, as time allows, one after
        the other. None again that was among the last: what one client asks and asks is one answer. Whoever is told so
        says what was `found`.
        """
        with self._lock:
            if not self.share or self.seconds > BEGIN_S + TIME * (self._clock() - self._began):
                return False
            drift = self._drifts.setdefault(collection, _Drift())
            drift.answers += 1
            if self._clock() < self._rests:
                return False
            wanted = drift.measured < FIRST or drift.answers % max(1, round(1 / self.share)) == 0
            # One that was left out for others, or that a thread has ended amid, tells nothing any more.
            waits = self._pending is not None and self._clock() - self._pending < LOST_S
            if not wanted or waits or prompt in drift.seen:
                return False
            self._pending = self._clock()
            drift.seen.append(prompt)
            return True

    def levels(self, collection: int, asked: Linker) -> list[Level]:
        """By which an answer is measured now."""
        with self._lock:
            if (drift := self._drifts.get(collection)) is None:
                return []
            more = [Level.MORE] if at_level(asked, Level.MORE) != asked else []
            drift.steps = (Level.ASKED, *more, Level.OFF)
            if drift.level not in drift.steps:
                drift.go(Level.ASKED)
            own: list[Level] = [] if drift.level is Level.OFF else [drift.level]
            below = drift.below()
        return own if below is None else [*own, below]

    def found(self, collection: int, measured: Sequence[tuple[Level, float]] | None, seconds: float) -> None:
        """What one answer came to, by each level, and what it took. None where it could not be measured, which tells
        nothing.
        """
        with self._lock:
            self.seconds, self._pending = self.seconds + seconds, None
            if measured is None:
                self.failed, self._rests = self.failed + 1, self._clock() + REST_S
            if (drift := self._drifts.get(collection)) is None or measured is None:
                return  # it is gone, or as it was
            drift.measured += bool(measured)
            drift.empty = 0 if measured else drift.empty + 1
            for level, kl in measured:
                counted = kl if kl <= CLIP else CLIP
                if level is drift.level:
                    drift.now.append(counted)
                elif level == drift.below():
                    drift.before.append(counted)
            was, changed = drift.level, _judged(drift)
        if changed is not None:
            why = "too far from" if changed > was else "near enough again to"
            now = _told(changed) or "it is linked as asked"
            log.warning("collection %d: answers over caches were %s those without: %s", collection, why, now)

    def states(self) -> list[QualityState]:
        with self._lock:
            return [
                QualityState(name, one.level, _mean(one.now), one.measured, _told(one.level))
                for name, one in self._drifts.items()
                if one.measured
            ]

    def forget(self, collection: int) -> None:
        """It is gone."""
        with self._lock:
            self._drifts.pop(collection, None)


def at_level(asked: Linker, level: Level) -> Linker:
    """A linker that has no measure of its repair cannot repair more."""
    if level is Level.ASKED or asked.recompute_all:
        return asked
    if level is Level.MORE and isinstance(asked, Auto):
        kl = None if asked.kl is None else asked.kl / MORE
        ratio = asked.ratio if kl is not None and asked.ratio is None else min(1.0, MORE * asked.most)
        return replace(asked, kl=kl, ratio=ratio)
    return asked if level is Level.MORE else Full()


def _judged(drift: _Drift) -> Level | None:
    """The level that it goes to, if it does."""
    below = drift.below()
    if drift.level is not Level.OFF and len(drift.now) >= FEWEST and (_mean(drift.now) or 0.0) > LIMIT:
        drift.go(drift.steps[drift.steps.index(drift.level) + 1])
        return drift.level
    if below is None:
        return None
    near = len(drift.before) >= MOST and (_mean(drift.before) or 0.0) <= BACK * LIMIT
    if near or drift.empty >= MOST:  # what had drifted is not there any more
        drift.go(below)
        return drift.level
    return None


def _mean(found: Sequence[float]) -> float | None:
    return sum(found) / len(found) if found else None


def _told(level: Level) -> str:
    return {
        Level.ASKED: "",
        Level.MORE: "more tokens are repaired, since answers over the cache had drifted from those without it",
        Level.OFF: "answers are computed without the cache, since those over it had drifted from those without it",
    }[level]
