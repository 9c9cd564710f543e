"""Whether a bucket can be used: where it fails, it is left alone for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from ragcache.errors import RemoteError
from ragcache.store.remote.jitter import jittered

PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0  # for which a bucket that failed is left alone, at first and at most
ALL_REFUSED = 16  # objects
_log = logging.getLogger(__name__)


class Health:
    """Of one way to use the bucket: where it fails, it is left alone, longer each time. Threads may share it."""

    def __init__(self, way: str, url: str, clock: Callable[[], float] = monotonic):
        self._way, self._url, self._clock = way, url, clock
        self._lock = threading.Lock()
        self._pause, self._until = 0.0, 0.0
        self._reason = ""
        self._told: list[str] = []
        self._refusals = 0  # of objects, with none between that could be used
        self._has_refused = False  # which was told

    def check(self) -> None:
        """Raises RemoteError while it is left alone."""
        with self._lock:
            if self._clock() < self._until:
                raise RemoteError(f"the bucket {self._url} is left alone for a while: {self._reason}")

    @property
    def left_s(self) -> float:
        """Seconds for which it is left alone."""
        with self._lock:
            return max(0.0, self._until - self._clock())

    @property
    def fine(self) -> bool:
        with self._lock:
            return not self._pause

    def failed(self, reason: str) -> RemoteError:
        with self._lock:
            first, now = not self._pause, self._clock()
            if first or now >= self._until:  # requests beside one another fail together
                self._pause = min(LONGEST_PAUSE_S, max(PAUSE_S, 2 * self._pause))
                self._until = now + jittered(self._pause)
            self._reason = reason
            told = f"the bucket {self._url} cannot be {self._way} now, and is tried again later: {reason}"
            if first:
                self._told = [told]
        if first:
            _log.warning("%s", told)
        return RemoteError(told)

    def refused(self, told: str) -> bool:
        """Whether that is of this object alone, and no reason to leave the others alone: so many one after the other
        are of all. Told of the first one.
        """
        with self._lock:
            self._refusals += 1
            alone, first = self._refusals < ALL_REFUSED, not self._has_refused
            self._has_refused = True
            if first:
                self._told.append(told)
        if first:
            _log.warning("%s", told)
        return alone

    def succeeded(self) -> None:
        with self._lock:
            back = self._pause > 0
            self._pause = self._until = 0.0
            self._refusals = 0
        if back:
            _log.warning("the bucket %s can be %s again", self._url, self._way)

    def take_told(self) -> list[str]:
        """What nobody has been told yet."""
        with self._lock:
            told, self._told = self._told, []
            return told
