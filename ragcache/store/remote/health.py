"""Whether a bucket can be used: where it fails, it is left alone for a while."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from time import monotonic

from ragcache.errors import RemoteError
from ragcache.store.remote.jitter import jittered

PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0  # for which a bucket that failed is left alone, at first and at most
# Objects one after the other of which that is said of each alone: then it is of all. Each that may not be written has
# been sent in vain, and the next ones would be; a deletion costs little, and a long document may be locked whole.
ALL_UNREADABLE, ALL_DENIED, ALL_LOCKED = 16, 4, 256
KNOWN_S = 3600.0  # for which it is remembered that an object was refused
MOST_KNOWN = 10_000  # of them, those that were refused last
_log = logging.getLogger(__name__)


class Health:
    """Of one way to use the bucket: where it fails, it is left alone, longer each time. Threads may share it."""

    def __init__(
        self,
        way: str,
        url: str,
        clock: Callable[[], float] = monotonic,
        most: int = ALL_UNREADABLE,
        *,
        quiet: bool = False,
    ):
        """`most`: objects that are refused in a row until nothing more is asked for. `quiet`: nobody is told."""
        self._way, self._url, self._clock, self._most = way, url, clock, most
        self._lock = threading.Lock()
        self._pause, self._until = 0.0, 0.0
        self._reason = ""
        self._told: list[str] = []
        self._refused = set[str]()  # objects, with none between that could be used
        self._known: dict[str, float] = {}  # of objects: when they were refused, the oldest first
        self._quiet = self._has_refused = quiet  # that some are refused was told

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
                self._refused.clear()  # or one that is tried again and again would leave no time to others
            self._reason = reason
            told = f"the bucket {self._url} cannot be {self._way} now, and is tried again later: {reason}"
            first = first and not self._quiet
            if first:
                self._told = [told]
        if first:
            _log.warning("%s", told)
        return RemoteError(told)

    def refused(self, path: str, told: str) -> bool:
        """Whether that is of this object alone, and no reason to leave the others alone. Told of the first one."""
        with self._lock:
            if len(self._refused) < self._most:
                self._refused.add(path)
            self._known.pop(path, None)
            self._known[path] = self._clock()
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
            alone, first = len(self._refused) < self._most, not self._has_refused
            self._has_refused = True
            if first:
                self._told.append(told)
        if first:
            _log.warning("%s", told)
        return alone

    def knows(self, path: str) -> bool:
        """Whether this object was refused a while ago."""
        with self._lock:
            return self._clock() - self._known.get(path, -math.inf) < KNOWN_S

    def succeeded(self) -> None:
        with self._lock:
            back = self._pause > 0 and not self._quiet
            self._pause = self._until = 0.0
            self._refused.clear()
        if back:
            _log.warning("the bucket %s can be %s again", self._url, self._way)

    def take_told(self) -> list[str]:
        """What nobody has been told yet."""
        with self._lock:
            told, self._told = self._told, []
            return told
